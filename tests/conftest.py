"""Puts this folder on the path of every test, for tiny.py."""
