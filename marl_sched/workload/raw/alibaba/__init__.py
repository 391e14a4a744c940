"""Formats of Alibaba's traces."""
