"""The generated code that is checked in is what the .proto files give."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROTOS = sorted(path.relative_to(ROOT) for path in (ROOT / "zones" / "proto").glob("*.proto"))
OUTPUTS = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


@pytest.mark.parametrize("proto", PROTOS, ids=lambda path: path.stem)
def test_generated_code_is_fresh(proto: Path, tmp_path: Path) -> None:
    """`make proto` writes it anew."""
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, str(proto)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    for suffix in OUTPUTS:
        name = proto.with_name(proto.stem + suffix)
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), name


def test_there_is_generated_code_of_nothing_else() -> None:
    found = {path.name for path in (ROOT / "zones" / "proto").glob("*_pb2*")}
    assert found == {proto.stem + suffix for proto in PROTOS for suffix in OUTPUTS}
