"""What zones are asked to run: the instance table, generators, traces."""
