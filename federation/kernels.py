"""Kernels compiled once a host, whoever of its processes is first."""

import fcntl
import os
import subprocess
import sys
import threading

from marl_sched import kernel_cache
from marl_sched.errors import RunError

_COMPILE = "from marl_sched.cli import main; main()"
_LIMIT_S = 900.0
_KILL_S = 5.0


class KernelCompiler:
    """Compiles in a process of its own, since that trains; `stop` ends it."""

    def __init__(self) -> None:
        """Compile nothing yet."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def compile(self) -> None:
        """Return once the kernels are compiled; of several processes one does it.

        Raises:
            RunError: It failed, or was stopped.
        """
        if not kernel_cache.is_cold():
            return
        handle = os.open(kernel_cache.CACHE_FOLDER, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if kernel_cache.is_cold():
                self._run()
        finally:
            os.close(handle)

    def stop(self) -> None:
        """End a compilation under way, and all that would follow."""
        with self._lock:
            self._is_stopped = True
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_KILL_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def _run(self) -> None:
        command = [sys.executable, "-c", _COMPILE, "compile"]
        with self._lock:
            if self._is_stopped:
                raise RunError("the kernels are not compiled: stopped")
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            exit_code = self._process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            exit_code = self._process.wait()
        if exit_code != 0:
            raise RunError(f"the kernels could not be compiled: exit code {exit_code}")
