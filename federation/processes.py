"""Processes that a supervisor starts, watches and ends, whatever becomes of it.

Each leads a session and group of its own: a Ctrl-C in the terminal reaches the supervisor alone,
and what a process has started itself ends with it. If the supervisor is killed, the kernel kills
them.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from federation import guarded
from marl_sched.errors import RunError

_logger = logging.getLogger(__name__)

_TAIL_BYTES = 4096


class Child:
    """One process; it may be started again after it has ended."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]
    ) -> None:
        """Describe it.

        Args:
            name: What messages call it.
            command: Program and arguments.
            log: File that its output is added to.
            env: Its whole environment.
        """
        self.name = name
        self.log = log
        self._command = list(command)
        self.env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, from the main thread: it ends with the thread that starts it.

        Raises:
            RunError: It cannot be started.
        """
        guard = [sys.executable, "-I", "-S", guarded.__file__, str(os.getpid())]
        try:
            with self.log.open("ab") as output:
                self._process = subprocess.Popen(
                    [*guard, *self._command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self.env,
                    start_new_session=True,
                )
        except OSError as error:
            raise RunError(f"{self.name}: cannot be started: {error.strerror or error}") from None
        _logger.info("%s: started as process %d", self.name, self._process.pid)

    @property
    def pid(self) -> int:
        """Its process id; 0 before the first start."""
        return 0 if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it has ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def last_line(self) -> str:
        """Return the last line that it has said; empty if none."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def describe_end(self) -> str:
        """Say how it has ended, in a line."""
        code = self.exit_code
        how = f"exit code {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"killed by {signal.Signals(-code).name}"
        said = self.last_line() if code is None or code > 0 else ""
        return f"{how} ({said})" if said else how

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def sweep(self) -> None:
        """Kill whatever is left of it and of what it has started; wait until it is gone."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def end_all(children: Iterable[Child], within_s: float) -> None:
    """End processes: politely, then not. Afterwards none of them is left."""
    children = list(children)
    for child in children:
        child.ask_to_end()
    deadline = time.monotonic() + within_s
    while any(child.is_running for child in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    for child in children:
        if child.is_running:
            _logger.warning("%s: did not end within %g s, is killed", child.name, within_s)
        child.sweep()


def free_port(host: str, port: int, what: str) -> int:
    """Return a port that nobody listens on.

    Args:
        host: The address to listen at.
        port: The port; 0: any.
        what: For the message.

    Raises:
        RunError: It is taken, or the address is not one of this host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            return int(listener.getsockname()[1])
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"{host}:{port}: {what} cannot listen there: {reason}") from None
