"""A view by hand, to be changed and made wrong."""

from typing import Any


def view_of(zone: str = "a", **changes: Any) -> dict[str, Any]:
    """Return a view of a zone of three machines, as it stands in its file."""
    candidate = {"kind": "machine", "index": 2, "name": "2", "utilization": [0.5, 0.25]}
    peer = {"kind": "peer", "index": 0, "name": "b", "utilization": None}
    return {
        "format": 1,
        "zone": zone,
        "time": 1.8e9,
        "phase": "training",
        "round": 3,
        "attempt": 1,
        "episode": 0,
        "share": 0.5,
        "simulated_s": 60.25,
        "n_waiting": 4,
        "n_running": 5,
        "n_decisions": 70,
        "resources": ["cpu_milli", "memory_mib"],
        "machines": {
            "n": 3,
            "per_cell": 1,
            "utilization": [[0.0, 1.0], [0.5, 0.25], [0.125, 0.75]],
            "allocation": [[0.25, 1.0], [0.75, 0.5], [0.5, 0.875]],
        },
        "offloads": {"c" if zone == "b" else "b": 6},
        "decision": {
            "simulated_s": 59.5,
            "request": {"cpu_milli": 1000, "memory_mib": 512},
            "is_exploring": False,
            "taus": [0.25, 0.75],
            "candidates": [
                {**candidate, "is_chosen": True, "mean": -0.5, "quantiles": [-1.0, 0.0]},
                {**peer, "is_chosen": False, "mean": -1.5, "quantiles": [-2.0, -1.0]},
            ],
        },
        **changes,
    }
