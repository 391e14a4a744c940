"""Real traces: loaders into one task table, and episodes drawn from it."""
