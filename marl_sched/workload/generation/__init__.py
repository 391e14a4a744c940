"""Jobs drawn from a trace's published figures: calibration, arrivals, DAGs, tasks."""
