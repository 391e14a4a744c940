"""numba kernels of the trace loaders."""
