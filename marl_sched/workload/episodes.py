"""What one zone's users submit in one episode."""

from marl_sched.config import Experiment, SyntheticWorkload, Zone
from marl_sched.workload import traces
from marl_sched.workload.synthetic import draw_synthetic
from marl_sched.workload.table import InstanceTable


def draw_workload(experiment: Experiment, zone: Zone, split: str, episode: int) -> InstanceTable:
    """Draw a zone's instance table; times start at 0, the start of the episode.

    A pure function of its arguments, and of nothing that belongs to another zone: adding a zone
    leaves every other zone's table as it was.

    Args:
        experiment: The configuration.
        zone: One of its zones.
        split: tune, train, validation or test.
        episode: Number of the episode within the split.

    Raises:
        ConfigError: Background use and waves alone exceed the configured load.
        TraceError: The trace cannot be read, or its window holds too little load.
    """
    workload = experiment.workload
    if isinstance(workload, SyntheticWorkload):
        return draw_synthetic(experiment, workload, zone, split, episode)
    table, _ = traces.draw_trace(experiment, workload, zone, split, episode)
    return table
