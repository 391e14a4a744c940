"""Play kube-default on the validation episodes of a configuration, in a process of its own.

    python -m dashboard.kube_default CONFIG

On stdout a JSON object with `metrics`, or the `reason` why there are none. It ends when its stdin
is closed: whoever started it is gone then.
"""

import json
import os
import sys
import threading
from typing import Any

from marl_sched.agents.heuristics import rule_factory
from marl_sched.config import load_config
from marl_sched.errors import MarlSchedError
from marl_sched.evaluation import EpisodePlayer
from marl_sched.observation import Layout

_BATCH = 4


def play(config: str) -> dict[str, float]:
    """Return the means of kube-default's metrics over the validation episodes.

    Raises:
        MarlSchedError: The configuration, or what it needs, cannot be read.
    """
    experiment = load_config(config)
    factory = rule_factory("kube-default", Layout(tuple(experiment.resources)), experiment)
    episodes = range(experiment.training.validation_episodes)
    # A rule plays an episode the same whatever is played beside it: few at a time take less memory.
    player = EpisodePlayer(experiment, min(_BATCH, experiment.evaluation.replicas))
    played = player.play(factory, "validation", episodes)
    return {name: float(values.mean()) for name, values in played.items()}


def main(config: str) -> int:
    """Play, and print what came of it."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    answer: dict[str, Any]
    try:
        answer = {"metrics": play(config)}
    except (MarlSchedError, OSError, MemoryError) as error:
        answer = {"reason": " ".join(str(error).split()) or type(error).__name__}
    print(json.dumps(answer), flush=True)  # noqa: T201 - this is its result
    return 0


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
