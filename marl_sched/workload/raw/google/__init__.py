"""Formats of Google's traces."""
