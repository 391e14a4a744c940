"""Run a command in a network of its own, where the only name server is this program.

    unshare --map-root-user --net --mount python name_watch.py FOLDER COMMAND [ARGUMENT]...

Every name that any process asks for, by whatever library, is a line of FOLDER/names. At the end
this program asks for one itself, so that silence of a broken set-up is no proof.
"""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

CONTROL = "control.invalid"
_MS_BIND = 4096
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def use_own_name_server(folder: Path) -> None:
    settings = folder / "resolv.conf"
    settings.write_text("nameserver 127.0.0.1\noptions attempts:1 timeout:1\n")
    libc = ctypes.CDLL(None, use_errno=True)
    source, target = str(settings).encode(), os.path.realpath("/etc/resolv.conf").encode()
    if libc.mount(source, target, None, _MS_BIND, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")


def name_of(query: bytes) -> str:
    labels, position = [], 12
    while query[position]:
        length = query[position]
        labels.append(query[position + 1 : position + 1 + length].decode("ascii", "replace"))
        position += 1 + length
    return ".".join(labels)


def serve(listener: socket.socket, names: Path) -> None:
    """Note every name, and answer that there is none."""
    while True:
        query, caller = listener.recvfrom(4096)
        with names.open("a") as file:
            file.write(f"{name_of(query)}\n")
        listener.sendto(query[:2] + b"\x81\x83" + query[4:], caller)


def main(folder: Path, command: list[str]) -> int:
    bring_loopback_up()
    use_own_name_server(folder)
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 53))
    threading.Thread(target=serve, args=(listener, folder / "names"), daemon=True).start()
    exit_code = subprocess.run(command, check=False).returncode
    try:
        socket.getaddrinfo(CONTROL, 80)
    except socket.gaierror:
        return exit_code
    raise RuntimeError(f"{CONTROL} was found")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
