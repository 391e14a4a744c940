"""Make a calibration from published files.

python -m marl_sched.workload.generation.fit alibaba-v2018 HISTOGRAMS.json.gz TASKS.csv.gz OUT
python -m marl_sched.workload.generation.fit openb PODS.csv OUT
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from marl_sched.errors import MarlSchedError, TraceError
from marl_sched.files import write_atomically
from marl_sched.workload.generation.calibration import Calibration
from marl_sched.workload.generation.fit_alibaba import fit_alibaba
from marl_sched.workload.generation.fit_openb import fit_openb

_N_SOURCES = {"alibaba-v2018": 2, "openb": 1}


def fit(name: str, sources: Sequence[Path]) -> Calibration:
    """Return the calibration of one of the two traces.

    Raises:
        TraceError: A file is missing.
    """
    for source in sources:
        if not source.is_file():
            raise TraceError(f"{source}: no such file, expected a published file of {name}")
    return fit_alibaba(*sources) if name == "alibaba-v2018" else fit_openb(*sources)


def main(arguments: Sequence[str]) -> int:
    """Fit, write, and say what was written."""
    name, *paths = arguments or [""]
    if len(paths) != _N_SOURCES.get(name, -1) + 1:
        sys.stderr.write(f"{__doc__}")
        return 2
    try:
        calibration = fit(name, [Path(path) for path in paths[:-1]])
    except MarlSchedError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    text = calibration.model_dump_json(indent=None, exclude_defaults=True)
    target = Path(paths[-1])
    write_atomically(target, lambda file: file.write(f"{text}\n".encode()))
    sys.stderr.write(f"{target}: {target.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
