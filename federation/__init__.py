"""Rounds of federated learning: the only package that imports Flower."""
