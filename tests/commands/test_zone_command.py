"""`marl-sched zone` as a process, and what it says when it cannot be one."""

import http.server
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from pki import DAY, self_signed, serve_echo
from superlink import BIN, WAIT_S, Driver, SuperLink, driving, processes, running, wait_for
from tiny import machines, tiny, zone

from federation.certificates import make_authority
from federation.exchange_hub import ExchangeHub
from federation.greeting import Hello
from federation.kernels import KernelCompiler
from federation.messages import Packed, encode_order
from federation.weights import WeightSpec, unpack
from marl_sched.cli import run
from marl_sched.cluster.exchange import LocalExchange
from marl_sched.config import Experiment, dump_config
from marl_sched.files import alone_in
from zones.chains import certificates_to_pem, utc_now
from zones.keys import key_to_openssh, key_to_pem, new_key, write_private
from zones.records import Assignment, NetworkPair, RoundOrder
from zones.worker import ZoneWorker, first_weights

Capture = pytest.CaptureFixture[str]
Log = Callable[[], str]
BUSY = tiny(
    zone("a", machines(20)),
    episode={"horizon_s": 36_000.0},
    training={"replicas": 16, "rounds": 3, "validation_episodes": 0},
)
"""An experiment whose rounds take minutes."""
QUICK = tiny(
    zone("a"),
    agent={"hidden": [8], "n_quantiles": 4, "warmup_decisions": 5, "batch_size": 8},
    training={"replicas": 2, "rounds": 3, "validation_episodes": 0},
)


def refused(*arguments: str | Path, capsys: Capture, exit_code: int = 1) -> str:
    """Run the command here; return its one line."""
    assert run(["zone", *map(str, arguments)]) == exit_code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--insecure"], "expected --superlink HOST:PORT"),
        (["--superlink", "127.0.0.1:9092", "--insecure", "--ca", "x"], "--insecure goes with none"),
        (["--superlink", "127.0.0.1:9092", "--join-token", "x"], "--join-token is for --enrol"),
        (["--superlink", "127.0.0.1:9092", "--join-folder", "x"], "--join-folder is for --enrol"),
        (
            ["--enrol", "x:1", "--join-folder", "x", "--join-token", "x"],
            "--join-token and --join-folder, expected one of them",
        ),
        (["--superlink", "127.0.0.1:9092", "--insecure", "--zone", "../x"], "--zone '../x'"),
        (["--superlink", "127.0.0.1:9092", "--insecure", "--wait-s", "-1"], "--wait-s"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], message: str, capsys: Capture) -> None:
    assert message in refused(*arguments, capsys=capsys, exit_code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--superlink", "10.0.0.1:9092", "--insecure"],
            "10.0.0.1:9092: --insecure is refused beyond this host",
        ),
        (["--superlink", "nonsense", "--insecure"], "'nonsense': not an address"),
        (["--superlink", "127.0.0.1:9092"], "not enrolled, expected --insecure on loopback, --ca"),
        (["--enrol", "x:1", "--join-token", "no"], "join token of 2 characters"),
        (["--superlink", "127.0.0.1:9092", "--ca", "nowhere.pem"], "nowhere.pem: cannot be read"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: Capture
) -> None:
    assert message in refused("--state", tmp_path / "z", *arguments, capsys=capsys)


@pytest.mark.network
def test_superlink_that_never_comes_up_is_named(tmp_path: Path, capsys: Capture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        start = time.monotonic()
        line = refused(
            "--superlink",
            address,
            "--insecure",
            "--state",
            tmp_path,
            "--wait-s",
            "1",
            capsys=capsys,
        )
        assert time.monotonic() - start < 20.0
    assert address in line
    assert "tried for 1 s" in line
    assert not (tmp_path / "ready").exists()


def test_folder_of_another_process_is_left_alone(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "runs").mkdir()
    with alone_in(tmp_path / "runs"):
        line = refused(
            "--superlink", "127.0.0.1:1", "--insecure", "--state", tmp_path, capsys=capsys
        )
    assert "another process is at work there" in line


@contextmanager
def tls_listener(folder: Path, hosts: list[str], is_expired: bool = False) -> Iterator[str]:
    """Serve with a certificate of its own CA, which is written to ca.pem; yield HOST:PORT."""
    key = new_key()
    certificate = self_signed(key, hosts, utc_now() - DAY if is_expired else None)
    pem = certificates_to_pem((certificate,))
    (folder / "ca.pem").write_bytes(pem)
    with serve_echo(grpc.ssl_server_credentials([(key_to_pem(key), pem)])) as address:
        yield address


def brought(folder: Path, address: str, *more: str | Path) -> list[str | Path]:
    options = ["--ca", folder / "ca.pem", "--state", folder / "zone", "--wait-s", "2"]
    return ["--superlink", address, *options, *more]


@pytest.mark.network
def test_certificate_for_another_host_is_named(tmp_path: Path, capsys: Capture) -> None:
    with tls_listener(tmp_path, ["elsewhere.example.org"]) as address:
        line = refused(*brought(tmp_path, address), capsys=capsys)
    assert "for elsewhere.example.org; expected a certificate for 127.0.0.1" in line


@pytest.mark.network
def test_expired_certificate_is_named(tmp_path: Path, capsys: Capture) -> None:
    with tls_listener(tmp_path, ["127.0.0.1"], is_expired=True) as address:
        line = refused(*brought(tmp_path, address), capsys=capsys)
    assert "expired at" in line


@pytest.mark.network
def test_certificate_of_another_ca_is_named(tmp_path: Path, capsys: Capture) -> None:
    with tls_listener(tmp_path, ["127.0.0.1"]) as address:
        files = make_authority(tmp_path / "pki").files
        line = refused(*brought(tmp_path, address, "--ca", files.ca), capsys=capsys)
    assert f"not signed by the CA of {files.ca}" in line


@pytest.mark.network
def test_plain_text_to_a_tls_listener_is_named(tmp_path: Path, capsys: Capture) -> None:
    with tls_listener(tmp_path, ["127.0.0.1"]) as address:
        line = refused(
            "--superlink",
            address,
            "--insecure",
            "--state",
            tmp_path / "zone",
            "--wait-s",
            "2",
            capsys=capsys,
        )
    assert "speaks TLS, expected plain text with --insecure" in line


@pytest.mark.network
def test_port_of_another_service_is_named(tmp_path: Path, capsys: Capture) -> None:
    pki = make_authority(tmp_path / "pki").files
    (tmp_path / "ca.pem").write_bytes(pki.ca.read_bytes())
    with serve_nothing(pki.load().credentials()) as address:
        line = refused(*brought(tmp_path, address), capsys=capsys)
    assert "has no Fleet API over gRPC, expected the Fleet port of a SuperLink of flwr 1.39" in line


@contextmanager
def serve_nothing(credentials: grpc.ServerCredentials) -> Iterator[str]:
    """Serve gRPC without any service."""
    from concurrent import futures

    with futures.ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


@pytest.mark.network
def test_fleet_api_over_http_as_in_a_later_flower_is_named(tmp_path: Path, capsys: Capture) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        line = refused(
            "--superlink",
            f"127.0.0.1:{server.server_port}",
            "--insecure",
            "--state",
            tmp_path,
            "--wait-s",
            "2",
            capsys=capsys,
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "speaks HTTP/1" in line
    assert "flwr 1.39" in line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "key: empty"),
        (b"nonsense", "key: not a private key in PEM"),
        (key_to_pem(new_key()), "key: an EC key on secp384r1 in PKCS #8 format"),
    ],
)
def test_key_of_another_kind_is_named(
    content: bytes, message: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "ca.pem").write_bytes(make_authority(tmp_path / "pki").files.ca.read_bytes())
    write_private(tmp_path / "key", content)
    key = ("--key", tmp_path / "key")
    assert message in refused(*brought(tmp_path, "127.0.0.1:1", *key), capsys=capsys)


def test_certificate_of_another_key_is_named(tmp_path: Path, capsys: Capture) -> None:
    key = new_key()
    write_private(tmp_path / "key", key_to_openssh(key))
    certificate = self_signed(new_key(), ["127.0.0.1"])
    for name in ("ca.pem", "own.pem"):
        (tmp_path / name).write_bytes(certificates_to_pem((certificate,)))
    files = ("--key", tmp_path / "key", "--certificate", tmp_path / "own.pem")
    line = refused(*brought(tmp_path, "127.0.0.1:1", *files), capsys=capsys)
    assert "does not match" in line


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperLink]:
    KernelCompiler().compile()  # or the zones would, in the tests' time
    with running(SuperLink(tmp_path_factory.mktemp("link"))) as superlink:
        yield superlink


@pytest.fixture
def driver(superlink: SuperLink) -> Iterator[Driver]:
    with driving(superlink) as driver:
        yield driver


class Zone:
    """A zone's process."""

    def __init__(
        self, start: "Callable[..., subprocess.Popen[bytes]]", superlink: SuperLink, folder: Path
    ) -> None:
        self._start, self._superlink, self.folder = start, superlink, folder
        self.log = folder.with_name(f"{folder.name}.log")

    def start(self, *options: str) -> "Zone":
        self.process = self._start(
            BIN / "marl-sched",
            "zone",
            "--superlink",
            self._superlink.fleet,
            "--insecure",
            "--state",
            self.folder,
            *options,
            log=self.log,
        )
        return self

    def state(self) -> str:
        try:
            said = json.loads((self.folder / "ready").read_bytes())
        except FileNotFoundError:
            return ""
        return str(said["state"]) if said["pid"] == self.process.pid else ""

    def said(self) -> str:
        return self.log.read_text()


@pytest.fixture
def a_zone(superlink: SuperLink, tmp_path: Path) -> Iterator[Zone]:
    with processes() as start:
        yield Zone(start, superlink, tmp_path / "zone")


def hello(experiment: Experiment, **more: object) -> Hello:
    return Hello(**({"config": dump_config(experiment), "run": "run"} | more))  # type: ignore[arg-type]


def send(
    driver: Driver,
    hub: ExchangeHub,
    node_id: int,
    experiment: Experiment,
    number: int,
    pair: NetworkPair,
) -> str:
    """Order a round of zone a; return the message's id."""
    invitation = hub.open(["a"], number, 1)["a"]
    given = RoundOrder(number, 1, ("a",), invitation=invitation, assignment=Assignment("a", 1))
    spec = WeightSpec.of(first_weights(experiment))
    return driver.push(node_id, encode_order(Packed.of(pair, spec), given))


@pytest.mark.network
def test_terminated_zone_is_gone_in_seconds_though_it_trains(driver: Driver, a_zone: Zone) -> None:
    a_zone.start("--zone", "a")
    (node_id,) = driver.wait_for_nodes(1)
    assert driver.greet_until_ready(node_id, hello(BUSY, zone="a", epoch=1)).name == "a"
    first = first_weights(BUSY)
    with ExchangeHub(BUSY, "127.0.0.1:0") as hub:
        send(driver, hub, node_id, BUSY, 1, NetworkPair(first, first))
        wait_for(lambda: a_zone.state() == "working", "the order is under way")
        start = time.monotonic()
        a_zone.process.terminate()
        assert a_zone.process.wait(WAIT_S) == 0
        assert time.monotonic() - start < 5.0
    assert driver.nodes() == []
    assert a_zone.state() == ""
    assert a_zone.said().endswith("stopped\n")


@pytest.mark.network
def test_killed_zone_comes_back_with_its_state_as_the_same_node(
    driver: Driver, a_zone: Zone, tmp_path: Path
) -> None:
    """And without being told again: what it does then, an unbroken zone would have done."""
    expected = ZoneWorker(QUICK, "a", LocalExchange(["a"]))
    first = first_weights(QUICK)
    pair = NetworkPair(first, first)
    a_zone.start()
    (node_id,) = driver.wait_for_nodes(1)
    driver.greet_until_ready(node_id, hello(QUICK, zone="a", epoch=1))
    with ExchangeHub(QUICK, "127.0.0.1:0") as hub:
        for number in (1, 2):
            if number == 2:
                a_zone.process.kill()
                a_zone.process.wait(WAIT_S)
                a_zone.start()
                wait_for(lambda: a_zone.state() == "online", "the zone is back", 2 * WAIT_S)
                assert driver.nodes() == [node_id]
            reply = driver.pull(send(driver, hub, node_id, QUICK, number, pair))
            assert not reply.has_error(), reply.error
            report = expected.train_round(pair, RoundOrder(number, 1, ("a",)))
            assert report.weights is not None
            pair = report.weights
            packed, origin = reply.content.array_records["arrays"], reply.content["report"]
            assert origin["epoch"] == 1
            spec = WeightSpec.of(pair.online)
            for name, tensor in unpack(packed["online"].numpy(), spec).items():
                np.testing.assert_array_equal(tensor, pair.online[name])
    assert "goes on from its state after round 1" in a_zone.said()


@pytest.mark.network
@pytest.mark.parametrize(
    ("told", "line"),
    [
        (hello(QUICK), "zone x is not in the configuration of run run: a"),
        (hello(QUICK, refusal="zone x is node 5 already"), "zone x is node 5 already"),
        (hello(QUICK, software="marl-sched 0"), "the run marl-sched 0; expected the same"),
    ],
)
def test_zone_that_the_run_cannot_use_says_why_and_is_gone(
    driver: Driver, a_zone: Zone, told: Hello, line: str
) -> None:
    a_zone.start("--zone", "x")
    (node_id,) = driver.wait_for_nodes(1)
    problem = driver.greet(node_id, told).problem
    assert line in problem
    assert a_zone.process.wait(WAIT_S) == 1
    assert a_zone.said().endswith(f"\nerror: {problem}\n")
    assert driver.nodes() == []


@pytest.mark.network
def test_interrupted_zone_is_gone_too(driver: Driver, a_zone: Zone) -> None:
    a_zone.start()
    driver.wait_for_nodes(1)
    wait_for(lambda: a_zone.state() == "online", "the zone is online")
    a_zone.process.send_signal(signal.SIGINT)
    assert a_zone.process.wait(WAIT_S) == 0
    assert driver.nodes() == []
