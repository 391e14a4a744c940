import contextlib
import socket
import threading
import time
from pathlib import Path

import pytest
from run_files import RunFiles, experiment
from served import BOUND_S, ask, port_of, quiet, serving, watching

from dashboard.app import STATIC
from dashboard.run_reader import RunReader
from dashboard.serving import address_of, listen
from marl_sched.errors import RunError

pytestmark = pytest.mark.network


@pytest.fixture
def run(tmp_path: Path) -> RunFiles:
    return RunFiles(tmp_path / "run").create()


def test_the_page_and_its_files_are_served_with_a_strict_policy(run: RunFiles) -> None:
    with serving(quiet(run.folder)) as address:
        paths = ["/", *(f"/static/{path.name}" for path in STATIC.iterdir())]
        for path in paths:
            status, headers, body = ask(address, path)
            assert (status, bool(body)) == (200, True), path
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-cache"
            assert "server" not in headers


def test_the_page_asks_nobody_else_and_makes_no_markup_of_texts() -> None:
    for path in STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path.name
        assert "https://" not in text, path.name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, (path.name, word)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_only_get_is_served(run: RunFiles, method: str) -> None:
    with serving(quiet(run.folder)) as address:
        status, headers, _ = ask(address, "/", method)
        assert (status, headers["allow"]) == (405, "GET")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost.:8080", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("10.0.0.1:8080", 403),
        ("[2001:db8::1]", 403),
        ("", 403),
    ],
)
def test_a_name_of_another_host_is_refused(run: RunFiles, host: str, status: int) -> None:
    with serving(quiet(run.folder)) as address:
        for path in ("/", "/events2", "/state.json"):
            found = ask(address, path, Host=host)[0]
            assert found == (404 if path == "/events2" and status == 200 else status)


def test_any_name_is_served_where_an_address_was_given(run: RunFiles) -> None:
    with serving(quiet(run.folder, is_loopback_only=False)) as address:
        assert ask(address, "/", Host="cluster.example:8080")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/run/config.yaml",
        "/run/metrics.jsonl",
        "/run/..%2Fsecret.png",
        "/run/../secret.png",
        "/run/link.png",
        "/run/UPPER.PNG",
        "/run/missing.png",
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/docs",
        "/openapi.json",
    ],
)
def test_no_other_file_is_served(run: RunFiles, path: str) -> None:
    secret = run.folder.parent / "secret.png"
    secret.write_bytes(b"secret")
    (run.folder / "link.png").symlink_to(secret)
    with serving(quiet(run.folder)) as address:
        status, headers, body = ask(address, path)
        assert status == 404
        assert b"secret" not in body
        assert "content-security-policy" in headers


def test_report_and_plots_are_served_as_what_they_are(run: RunFiles) -> None:
    (run.folder / "report.md").write_text("# <script>")
    (run.folder / "objective.png").write_bytes(b"\x89PNG")
    with serving(quiet(run.folder)) as address:
        _, headers, body = ask(address, "/run/report.md")
        assert (headers["content-type"], body) == ("text/plain; charset=utf-8", b"# <script>")
        _, headers, body = ask(address, "/run/objective.png")
        assert (headers["content-type"], body) == ("image/png", b"\x89PNG")
        with watching(address) as stream:
            assert stream.until("files") == {"report": True, "plots": ["objective.png"]}


def test_a_stream_begins_with_everything_and_goes_on_with_what_is_new(run: RunFiles) -> None:
    for zone in run.zones:
        run.show(zone)
    with serving(quiet(run.folder)) as address, watching(address) as stream:
        first = stream.state()
        assert first["full"]
        assert {"run", "zones", "rounds", "zone:zone_0", "zone:zone_2"} <= set(first["sections"])
        run.show("zone_2", n_waiting=41)
        following = stream.state()
        assert not following["full"]
        assert set(following["sections"]) == {"zone:zone_2"}
        assert following["sections"]["zone:zone_2"]["n_waiting"] == 41
        run.round(1)
        assert stream.until("rounds")[0]["round"] == 1


def test_who_comes_back_gets_everything_again(run: RunFiles) -> None:
    run.show("zone_0", n_waiting=1)
    with serving(quiet(run.folder)) as address:
        with watching(address) as stream:
            stream.state()
        run.show("zone_0", n_waiting=2)
        with watching(address, **{"Last-Event-ID": "999999"}) as stream:
            found = stream.state()
            assert found["full"]
            assert found["sections"]["zone:zone_0"]["n_waiting"] == 2


def test_a_silent_run_is_told_by_beats(run: RunFiles) -> None:
    with serving(quiet(run.folder, beat_s=0.05)) as address, watching(address) as stream:
        stream.state()
        assert [stream.event()[0] for _ in range(2)] == ["beat", "beat"]


def test_two_dashboards_show_one_run(run: RunFiles) -> None:
    with (
        serving(quiet(run.folder)) as one,
        serving(quiet(run.folder)) as other,
        watching(one) as first,
        watching(other) as second,
    ):
        first.state(), second.state()
        run.show("zone_1", n_waiting=9)
        for stream in (first, second):
            assert stream.until("zone:zone_1")["n_waiting"] == 9


def test_one_page_too_many_is_refused_until_one_leaves(run: RunFiles) -> None:
    with serving(quiet(run.folder, most_watchers=2)) as address:
        with watching(address) as one, watching(address) as two:
            one.state(), two.state()
            status, headers, _ = ask(address, "/events")
            assert (status, headers["retry-after"]) == (503, "5")
        deadline = time.monotonic() + BOUND_S
        while time.monotonic() < deadline:
            with watching(address) as stream:
                if stream.response.status == 200:
                    assert stream.state()["full"]
                    return
        pytest.fail("nobody was let in after two had left")


def test_a_page_that_does_not_read_is_dropped_and_holds_up_nobody(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", experiment(24, 1000)).create()
    with (
        serving(quiet(run.folder, send_s=0.3, most_watchers=2)) as address,
        socket.socket() as lazy,
    ):
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", port_of(address)))
        lazy.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with watching(address) as stream:
            stream.state()
            deadline = time.monotonic() + BOUND_S
            while ask_status(address) == 503:
                assert time.monotonic() < deadline, "the lazy one still has its place"
                for zone in run.zones:  # half a megabyte: more than the socket holds
                    run.show(zone)
                stream.state()


def ask_status(address: str) -> int:
    """Return the status of a new stream, which is left at once."""
    with watching(address) as stream:
        return stream.response.status


def test_a_server_that_ends_sends_its_watchers_home(run: RunFiles) -> None:
    with contextlib.ExitStack() as server:
        address = server.enter_context(serving(quiet(run.folder)))
        with watching(address) as stream:
            stream.state()
            server.close()
            with pytest.raises(EOFError):
                stream.event()


def test_a_run_may_begin_after_the_dashboard(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "later" / "run")
    with serving(quiet(run.folder)) as address, watching(address) as stream:
        assert stream.state()["sections"]["run"]["state"] == "waiting"
        run.create()
        assert [zone["name"] for zone in stream.until("zones")] == run.zones


def test_everything_can_be_had_at_once(run: RunFiles) -> None:
    run.show("zone_0")
    with serving(quiet(run.folder)) as address:
        status, headers, body = ask(address, "/state.json")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert b'"zone:zone_0":' in body
        assert ask(address, "/health")[0] == 200


def test_prometheus_sees_who_watches(run: RunFiles) -> None:
    with serving(quiet(run.folder, most_watchers=1)) as address, watching(address) as stream:
        stream.state()
        assert ask(address, "/events")[0] == 503
        status, headers, body = ask(address, "/metrics")
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = body.decode().splitlines()
        assert "marl_sched_dashboard_watchers 1.0" in lines
        assert "marl_sched_dashboard_refused_total 1.0" in lines
        assert any(line.startswith("marl_sched_dashboard_run_age_seconds ") for line in lines)


def test_a_reader_that_breaks_leaves_the_page_up(
    run: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(quiet(run.folder)) as address, watching(address) as stream:
        stream.state()
        poll = RunReader.poll
        broken = threading.Event()

        def break_down(reader: RunReader) -> dict[str, bytes | None]:
            broken.set()
            raise ValueError("a bug")

        monkeypatch.setattr(RunReader, "poll", break_down)
        assert broken.wait(BOUND_S)
        monkeypatch.setattr(RunReader, "poll", poll)
        run.show("zone_0", n_waiting=3)
        assert stream.until("zone:zone_0")["n_waiting"] == 3


def test_a_taken_port_is_named() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = port_of(address_of(listener))
        with pytest.raises(RunError, match=f"port {port} of 127.0.0.1 is taken"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.7", "no such host", "a" * 70])
def test_an_address_of_another_host_is_refused(host: str) -> None:
    with pytest.raises(RunError, match=rf"{host}.*: "):
        listen(host, 0)
