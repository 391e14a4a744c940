"""Formats of Azure's traces."""
