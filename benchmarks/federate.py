"""What zones as processes cost: seconds a round beyond training, and bytes by Flower's record.

    python benchmarks/federate.py [--rounds 8] [--hidden 400] [--secure]

Three zones on loopback, of two machines each. A round's overhead is its time less that of its
slowest zone; the first round, in which everything is new, is told apart. Bytes are those that the
SuperLink has recorded for the run, over what the packed networks weigh.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
N_ZONES = 3


def settings(rounds: int, hidden: int) -> list[str]:
    """Return the overrides of base.yaml that make it small, with a network of any size."""
    machines = "machines: [{count: 2, capacity: {cpu_milli: 64000, memory_mib: 131072}}]"
    zones = ", ".join(f"{{name: {name}, {machines}}}" for name in ("east", "north", "west"))
    values = (
        f"zones=[{zones}]",
        "episode={horizon_s: 60.0, drain_s: 60.0}",
        f"training={{replicas: 2, rounds: {rounds}, validation_episodes: 2, validate_every: 100}}",
        f"agent={{hidden: [{hidden}, {hidden}], warmup_decisions: 20, batch_size: 16, "
        "decisions_per_update: 64, replay_mib: 1}",
    )
    return [part for value in values for part in ("--set", value)]


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=400)
    parser.add_argument("--secure", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-c", "from marl_sched.cli import main; main()", "federate"]
        command += [str(ROOT / "configs" / "base.yaml"), "--out", str(run)]
        command += [*settings(given.rounds, given.hidden), *["--secure"] * given.secure]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stderr)
        report(run, done.stderr, given.rounds)


def report(run: Path, said: str, rounds: int) -> None:
    """Print overhead, memory and traffic of a run."""
    lines = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    by_round: dict[int, list[dict[str, float]]] = {}
    for line in lines:
        by_round.setdefault(line["round"], []).append(line)
    overhead = [
        zones[0]["round_s"] - max(zone["zone_s"] for zone in zones)
        for _, zones in sorted(by_round.items())
    ]
    print(
        f"overhead a round: first {overhead[0]:.2f} s, then median "
        f"{statistics.median(overhead[1:]):.2f} s, largest {max(overhead[1:]):.2f} s"
    )
    print(f"memory of a zone's process: {max(line['process_peak_mib'] for line in lines):.0f} MiB")
    model = lines[0]["bytes_down"]
    total = 1e6 * float(re.findall(r"record: ([\d.]+) MB", said)[0])
    print(
        f"networks: {model / 1e6:.3f} MB; traffic {total / 1e6:.2f} MB, "
        f"{total / rounds / (N_ZONES * model):.3f} x zones x networks a round"
    )


if __name__ == "__main__":
    main()
