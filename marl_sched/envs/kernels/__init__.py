"""Numba kernels that write observations."""
