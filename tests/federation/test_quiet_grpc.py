"""What gRPC says of a handshake that fails does not reach the terminal, unless it is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from federation.certificates import make_authority

pytestmark = pytest.mark.network

# A listener with TLS, and a caller that trusts another CA; both of this process.
HANDSHAKE = """
import sys
import federation
import grpc
from pathlib import Path
from concurrent.futures import ThreadPoolExecutor
key, chain, other = (Path(name).read_bytes() for name in sys.argv[1:])
server = grpc.server(ThreadPoolExecutor(1))
port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
server.start()
channel = grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(other))
call = channel.unary_unary("/a/b")
try:
    call(b"", timeout=20.0)
except grpc.RpcError as error:
    print(error.code().name)
server.stop(0).wait()
"""


def handshake(tmp_path: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    ours, other = make_authority(tmp_path / "ours").files, make_authority(tmp_path / "other").files
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GRPC_")}
    files = [str(path) for path in (ours.key, ours.certificate, other.ca)]
    return subprocess.run(
        [sys.executable, "-c", HANDSHAKE, *files],
        check=True,
        capture_output=True,
        text=True,
        timeout=60.0,
        env={**clean, **environment},
    )


def test_failed_handshake_writes_nothing_of_its_own(tmp_path: Path) -> None:
    done = handshake(tmp_path)
    assert (done.stdout, done.stderr) == ("UNAVAILABLE\n", "")


def test_what_the_user_asks_grpc_to_say_is_said(tmp_path: Path) -> None:
    done = handshake(tmp_path, GRPC_VERBOSITY="INFO")
    assert "Handshake failed" in done.stderr
