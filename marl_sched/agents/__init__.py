"""Policies and learners: they see arrays only."""
