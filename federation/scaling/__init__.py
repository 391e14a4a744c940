"""Measuring a federation of real processes."""
