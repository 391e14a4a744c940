"""Numba kernels of the simulator: one replica `e` at a time, arrays in, arrays changed."""
