"""The rule `tuned`: a weighted score over the candidate features, and the file its weights live in.

Machines and peers have weights of their own, and so has every resource, so that the rule may
offload before nothing fits here. A weight is named `machine.FEATURE` or `peer.FEATURE`, features as
in `Layout`. Shapes: B rows, M machines, P peers, F features, R resources.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.config import Experiment
from marl_sched.errors import ConfigError
from marl_sched.fit_check import UNFIT_PENALTY, are_short
from marl_sched.observation import Layout, Observation

_logger = logging.getLogger(__name__)

TUNED_FOLDER = Path("configs/tuned")
"""Where `tune` writes and `make_policy` reads unless told otherwise, as the commands do: they look
beside the configuration."""

_DECIMALS = 6
"""Scores are rounded, so that a matrix product's last bits (they depend on the batch) never break
a tie between equal machines."""

_PRIOR = {
    # feature: (hand-set weight, spread of the search). Both kinds are compared, so both are in
    # about the same units, those of the objective: cost carries its .5, and a change of the
    # standard deviation times the machines weighs 5, as an instance of 80 s does in a zone's mean.
    "machine.speed": (0.5, 0.7),
    "machine.price": (0.0, 0.2),
    "machine.alignment": (0.0, 1.0),
    "machine.allocation_gap": (-0.5, 1.0),
    "machine.expected_duration": (-1.0, 1.0),
    "machine.expected_late": (-1.0, 1.0),
    "machine.expected_slack": (0.35, 0.3),
    "machine.running": (0.0, 0.2),
    "machine.takes_largest_slot": (-0.1, 0.4),
    "machine.cost": (-0.5, 0.8),
    "peer.is_peer": (-1.8, 1.0),
    "peer.speed": (0.5, 0.7),
    "peer.price": (0.0, 0.2),
    "peer.expected_duration": (-1.0, 1.0),
    "peer.expected_late": (-1.0, 1.0),
    "peer.expected_slack": (0.45, 0.3),
    "peer.running": (-0.4, 0.3),
    "peer.digest_age": (0.0, 0.3),
    "peer.sent_share": (-1.0, 2.0),
    "peer.transfer": (-0.5, 0.5),
    "peer.fits_largest_slot": (0.5, 0.5),
}

_PRIOR_PER_RESOURCE = {
    "machine.free_share_after": (0.2, 0.6),
    "machine.utilization_after": (-0.5, 1.0),
    "machine.utilization_mean": (0.0, 0.5),
    "machine.utilization_sd": (0.0, 0.5),
    "machine.imbalance_change": (-5.0, 4.0),
    "machine.relative_size": (0.0, 0.3),
    "peer.free_share": (1.0, 1.0),
    "peer.utilization": (-0.3, 0.7),
    "peer.utilization_sd": (0.0, 0.5),
}


def weight_priors(layout: Layout) -> dict[str, tuple[float, float]]:
    """Return the hand-set value of every weight and the spread of its search."""
    priors = dict(_PRIOR)
    for name, prior in _PRIOR_PER_RESOURCE.items():
        priors |= {f"{name}:{resource}": prior for resource in layout.resources}
    return priors


def default_weights(layout: Layout) -> dict[str, float]:
    """Return the hand-set weights: where tuning starts."""
    return {name: value for name, (value, _) in weight_priors(layout).items()}


class TunedRule:
    """The unmasked candidate, machine or peer, with the largest weighted score.

    As schedulers filter before they score, a machine that does not fit comes after all other
    candidates; only unmasked placement offers one.
    """

    def __init__(self, layout: Layout, weights: Mapping[str, float]) -> None:
        """Build the rule.

        Args:
            layout: The observation's columns.
            weights: By name; a missing weight is 0.

        Raises:
            ConfigError: A name is neither `machine.FEATURE` nor `peer.FEATURE`.
        """
        self._fit = layout.fit_columns
        self._weights = {kind: np.zeros(len(layout.candidate)) for kind in ("machine", "peer")}
        for name, weight in weights.items():
            kind, _, feature = name.partition(".")
            if kind not in self._weights or feature not in layout.candidate:
                raise ConfigError(
                    f"weight {name} = {weight}, expected a name machine.FEATURE or peer.FEATURE "
                    f"with a feature out of {', '.join(layout.candidate)}"
                )
            self._weights[kind][layout.candidate_index(feature)] = weight

    @property
    def weights(self) -> NDArray[np.float64]:
        """Return (2, F) weights of machines and of peers."""
        return np.stack([self._weights["machine"], self._weights["peer"]])

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        """Start new episodes: the rule has no state and draws nothing."""

    def scores(self, observation: Observation) -> NDArray[np.float64]:
        """Return the weighted score of every candidate, (B, C), masked or not."""
        candidates = observation.candidates.astype(np.float64)
        split = observation.n_machines
        scores = np.empty(candidates.shape[:2])  # (B, C)
        scores[:, :split] = candidates[:, :split] @ self._weights["machine"]
        scores[:, split:] = candidates[:, split:] @ self._weights["peer"]
        scores[:, :split] -= UNFIT_PENALTY * are_short(observation.candidates[:, :split], self._fit)
        return scores.round(_DECIMALS)

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) unmasked candidates; ties go to the first."""
        allowed = np.where(observation.mask, self.scores(observation), -np.inf)
        actions: NDArray[np.int64] = allowed.argmax(axis=1)
        return actions


def tuned_path(experiment: Experiment, folder: Path | None = None) -> Path:
    """Return where the tuned weights of an experiment are kept."""
    return (TUNED_FOLDER if folder is None else folder) / f"{experiment.name}.json"


def load_tuned(path: Path, layout: Layout, environment: str | None = None) -> dict[str, float]:
    """Read tuned weights; log a warning if they were tuned in another environment.

    Args:
        path: The file.
        layout: The observation's columns.
        environment: Hash of the environment they will be used in (`environment_hash`), for a rival
            that should be as strong as can be; None: any will do, as for what an agent starts from.

    Raises:
        ConfigError: The file is missing, not one of ours, or has weights of other features.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there are no tuned weights yet; make them: marl-sched tune CONFIG"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: not a file of tuned weights: {reason}") from None
    weights = content.get("weights") if isinstance(content, dict) else None
    if not isinstance(weights, dict):
        raise ConfigError(f"{path}: has no mapping `weights`, expected a file written by `tune`")
    known = weight_priors(layout)
    for name, value in weights.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name not in known or not is_number or not np.isfinite(value):
            raise ConfigError(
                f"{path}: weights.{name} = {value!r}, expected a finite number for one of the "
                f"features of resources {list(layout.resources)}"
            )
    if environment is not None and content.get("environment_hash") != environment:
        _logger.warning(
            "%s: tuned in environment %s, used in %s: a weaker rival than one tuned here",
            path,
            content.get("environment_hash"),
            environment,
        )
    return {name: float(value) for name, value in weights.items()}
