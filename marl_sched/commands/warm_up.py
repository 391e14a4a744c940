"""What every command does before it meets a kernel."""

import subprocess
import sys

from marl_sched import kernel_cache
from marl_sched.errors import MarlSchedError

_COMPILE = "from marl_sched.cli import main; main()"


def warm_up() -> None:
    """Run `marl-sched compile` unless the kernels are compiled already.

    It runs in a process of its own, since it trains: the rules' commands need no torch and no
    Flower, and do not wait for them.

    Raises:
        MarlSchedError: It failed.
    """
    if not kernel_cache.is_cold():
        return
    # Its talk is on stderr; our stdout is for results only.
    command = [sys.executable, "-c", _COMPILE, "compile"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise MarlSchedError("the kernels could not be compiled: see above")
