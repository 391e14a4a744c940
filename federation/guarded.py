"""Run a command that ends when its parent does, even if that is killed.

    python -I -S guarded.py PARENT_PID COMMAND [ARGUMENT]...

The kernel sends the signal, so that no process of ours has to be alive for it. Linux only;
elsewhere the command runs all the same.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the process that has started this one ends.

    Args:
        parent_pid: That process; if it has ended already, so does this one.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
