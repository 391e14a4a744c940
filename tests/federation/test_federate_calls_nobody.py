"""Nothing of a federated run asks for a name: no telemetry, no update check, no installation."""

import shutil
import subprocess
import sys
from pathlib import Path

import name_watch
import pytest
from federate_process import COMMAND, experiment_of

from marl_sched.commands.warm_up import warm_up
from marl_sched.config import dump_config

pytestmark = [pytest.mark.network, pytest.mark.processes]
OWN_NETWORK = ["unshare", "--map-root-user", "--net", "--mount"]


def has_own_network() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*OWN_NETWORK, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_own_network(), reason="needs a network namespace (unshare)")
@pytest.mark.parametrize("security", ["--insecure", "--secure"])
def test_whole_run_looks_no_name_up(tmp_path: Path, security: str) -> None:
    warm_up()
    config = tmp_path / "tiny.yaml"
    config.write_text(dump_config(experiment_of(2)))
    command = [*COMMAND, "federate", str(config), "--out", str(tmp_path / "run"), security]
    watch = [*OWN_NETWORK, sys.executable, name_watch.__file__, str(tmp_path)]
    done = subprocess.run(
        [*watch, *command], capture_output=True, text=True, timeout=115, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "wrote" in done.stdout
    assert set((tmp_path / "names").read_text().split()) == {name_watch.CONTROL}
