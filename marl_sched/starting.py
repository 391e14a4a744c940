"""Begin a run with what another one has published, instead of drawn weights.

The files are copied into the new run's folder (checkpoints/zones/ZONE/start.npz): it depends on
nothing outside of it, also when it is gone on with.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.policies import load_policy
from marl_sched.config import Experiment, load_config
from marl_sched.errors import CheckpointError, ConfigError, RunError
from marl_sched.files import naming, write_atomically
from marl_sched.observation import Layout
from marl_sched.run_folder import RunFolder
from marl_sched.training_config import with_weights_of

DRAWN = ""
"""Stands for the drawn weights of a zone that begins with nothing."""
_START = "start.npz"

Files = Mapping[str, Path]
"""Policy file by zone; a zone without one begins with drawn weights."""
Tensors = Mapping[str, NDArray[np.float32]]


def policy_files(run: Path, zones: Iterable[str], takes: Mapping[str, str]) -> dict[str, Path]:
    """Return the published policy that every zone begins with; zones without one are left out.

    Args:
        run: Folder of the run that published.
        zones: Zones of the new run.
        takes: Zone -> the zone of `run` whose policy it takes, or DRAWN; default: its own.

    Raises:
        ConfigError: A zone of `takes` is not one of the new run's.
        CheckpointError: Nothing was published, or not for a zone.
    """
    names = list(zones)
    for zone in takes:
        if zone not in names:
            raise ConfigError(f"--takes {zone}: expected a zone out of {', '.join(names)}")
    taken = {zone: takes.get(zone, zone) for zone in names}
    published = RunFolder(run).policy_paths(o for o in taken.values() if o != DRAWN)
    for zone, origin in taken.items():
        if origin != DRAWN and not published[origin].is_file():
            raise CheckpointError(
                f"{published[origin]}: no such file: zone {origin} has no policy of its own in "
                f"that run; say whose policy zone {zone} begins with: --takes {zone}=ZONE, or "
                f"--takes {zone}= for drawn weights"
            )
    return {zone: published[origin] for zone, origin in taken.items() if origin != DRAWN}


def with_prior_of(experiment: Experiment, run: Path) -> Experiment:
    """Return an experiment with the prior's weights of another run, if it names none.

    Raises:
        ConfigError: The run's configuration cannot be read.
    """
    return with_weights_of(experiment, load_config(RunFolder(run).config_path))


def keep_start(run: RunFolder, experiment: Experiment, files: Files) -> None:
    """Have a run without a round begin with these files, and with no others."""
    for zone in experiment.zone_names:
        kept = _kept(run.zone_path(zone))
        if zone not in files:
            kept.unlink(missing_ok=True)
            continue
        with naming(files[zone]):
            content = files[zone].read_bytes()
        with naming(kept):
            kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, partial(_write, content))


def require_start(run: RunFolder, experiment: Experiment, files: Files) -> None:
    """Check that a run to go on with began with these files.

    Raises:
        RunError: It did not.
    """
    for zone in experiment.zone_names:
        kept = _kept(run.zone_path(zone))
        was = kept.read_bytes() if kept.exists() else None
        if was != (files[zone].read_bytes() if zone in files else None):
            raise RunError(
                f"{run.path}: zone {zone} did not begin with what --from and --takes give it; "
                "expected the same as at first, or neither of them"
            )


def start_weights(folder: Path | None, experiment: Experiment, drawn: Tensors) -> Tensors:
    """Return the weights that a zone begins with.

    Args:
        folder: The zone's folder; None: it has none.
        experiment: What runs.
        drawn: Its drawn weights. What the file of a policy does not hold, values of contexts, is
            taken from them.

    Raises:
        CheckpointError: The kept file is not whole, or of another network.
    """
    if folder is None or not _kept(folder).exists():
        return drawn
    path = _kept(folder)
    layout = Layout(tuple(experiment.resources))
    weights = load_policy(path, layout, experiment.agent).weights()
    for name, tensor in weights.items():
        expected = drawn[name].shape if name in drawn else None
        if tensor.shape != expected:
            raise CheckpointError(f"{path}: {name} is {tensor.shape}, expected {expected}")
    return {**drawn, **weights}


def _kept(folder: Path) -> Path:
    return folder / _START


def _write(content: bytes, file: IO[bytes]) -> object:
    return file.write(content)
