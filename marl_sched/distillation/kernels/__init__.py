"""Numba kernels that play and price what-if continuations."""
