"""Dashboards and browsers for tests."""

import contextlib
import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dashboard.app import Settings
from dashboard.serving import Server, address_of, listen

BOUND_S = 30.0
"""Longest wait for anything."""


@contextmanager
def serving(settings: Settings, port: int = 0) -> Iterator[str]:
    """Serve a dashboard by a thread; yield its address."""
    with listen("127.0.0.1", port) as listener:
        server = Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield address_of(listener)
        finally:
            server.stop()
            thread.join(BOUND_S)
            assert not thread.is_alive()


def quiet(run: Path, **more: Any) -> Settings:
    """Return settings that play no rule and look often."""
    return Settings(run=run, has_baseline=False, **{"poll_s": 0.02, **more})


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def ask(
    address: str, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Make a request; return status, headers and body."""
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", port_of(address), timeout=BOUND_S)
    ) as connection:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return response.status, names, response.read()


class Watching:
    """A stream of events, read one by one."""

    def __init__(self, address: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", port_of(address), timeout=BOUND_S
        )
        self._connection.request("GET", "/events", headers=headers)
        self.response = self._connection.getresponse()

    def event(self) -> tuple[str, dict[str, Any]]:
        """Return name and content of the next event.

        Raises:
            EOFError: The stream has ended.
        """
        fields: dict[str, str] = {}
        while True:
            line = self.response.readline().decode()
            if not line:
                raise EOFError
            if line == "\n" and "data" in fields:
                return fields["event"], json.loads(fields["data"])
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value

    def state(self) -> dict[str, Any]:
        """Return the next state, past all beats."""
        while True:
            name, content = self.event()
            if name == "state":
                return content

    def until(self, section: str) -> Any:
        """Return a section as it is next sent."""
        while section not in (sections := self.state()["sections"]):
            pass
        return sections[section]

    def close(self) -> None:
        self._connection.close()


@contextmanager
def watching(address: str, **headers: str) -> Iterator[Watching]:
    """Watch a dashboard as a page does."""
    with contextlib.closing(Watching(address, **headers)) as stream:
        yield stream


def chromium_path() -> str | None:
    """Return a Chromium of this host."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)
