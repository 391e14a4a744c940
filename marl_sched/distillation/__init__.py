"""Counterfactual distillation: a network learns what alternatives of its prior gain."""
