"""What a task table holds, in figures."""
