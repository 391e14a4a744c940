"""Comparisons of policies that are trained, many seeds each: what `marl-sched compare` does."""
