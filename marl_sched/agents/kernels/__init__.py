"""Compiled kernels of the learned agent."""
