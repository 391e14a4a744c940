"""The web application: the page, its stream of events, and the files of the run that it links."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dashboard.baseline import Baseline
from dashboard.event_stream import EventStream
from dashboard.following import open_file
from dashboard.guard import Guard
from dashboard.page_metrics import CONTENT_TYPE
from dashboard.run_reader import REPORT, RunReader, is_plot
from dashboard.watchers import Watchers

STATIC = Path(__file__).parent / "static"
_LARGEST = 16 << 20
_REVALIDATE = {"cache-control": "no-cache"}


@dataclass(frozen=True)
class Settings:
    """How a dashboard is served.

    Attributes:
        run: The run's folder.
        is_loopback_only: Whether requests by other names than those of loopback are refused.
        has_baseline: Whether kube-default is played for comparison.
        poll_s: Time between two looks at the folder while somebody watches.
        most_watchers: Pages at a time.
        send_s: How long a watcher may take to read an update.
        beat_s: Longest silence on a stream.
    """

    run: Path
    is_loopback_only: bool = True
    has_baseline: bool = True
    poll_s: float = 0.5
    most_watchers: int = 32
    send_s: float = 20.0
    beat_s: float = 10.0


class _Static(StaticFiles):
    """Files of the page; a browser asks every time whether its copy is the newest."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response: Response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers.update(_REVALIDATE)
        return response


class _Stream:
    """The route of the events, which answers for itself."""

    def __init__(self, settings: Settings, watchers: Watchers) -> None:
        self._settings = settings
        self._watchers = watchers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._watchers.has_room:
            stream = EventStream(self._watchers, self._settings.send_s, self._settings.beat_s)
            await stream(scope, receive, send)
            return
        self._watchers.metrics.refuse()
        refusal = f"{self._settings.most_watchers} pages are open already\n"
        response = PlainTextResponse(refusal, 503, {"retry-after": "5"})
        await response(scope, receive, send)


def make_app(settings: Settings) -> FastAPI:
    """Return the application; `app.state.watchers` is who watches."""
    baseline = Baseline(settings.has_baseline)
    reader = RunReader(settings.run)
    watchers = Watchers(reader, baseline, settings.poll_s, settings.most_watchers)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(watchers.run())
        try:
            yield
        finally:
            watchers.close()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await baseline.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.watchers = watchers
    app.add_middleware(Guard, is_loopback_only=settings.is_loopback_only)
    app.mount("/static", _Static(directory=STATIC))
    app.router.routes.append(Route("/events", _Stream(settings, watchers)))
    _add_routes(app, settings.run, watchers)
    return app


def _add_routes(app: FastAPI, run: Path, watchers: Watchers) -> None:
    @app.get("/")
    def page() -> Response:
        content = (STATIC / "index.html").read_bytes()
        return Response(content, media_type="text/html", headers=_REVALIDATE)

    @app.get("/health")
    async def health() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/metrics")
    async def metrics() -> Response:
        """What the dashboard counts of itself; the run's own metrics are its processes'."""
        text = watchers.metrics.text()
        return Response(text, headers={"content-type": CONTENT_TYPE, "cache-control": "no-store"})

    @app.get("/state.json")
    async def state() -> Response:
        """Everything the page is told, once: for scripts."""
        await watchers.refresh()
        headers = {"cache-control": "no-store"}
        return Response(
            watchers.board.message(since=0), media_type="application/json", headers=headers
        )

    @app.get("/run/{name}")
    def run_file(name: str) -> Response:
        """The report, as text, and the plots; no other file of the run."""
        if name == REPORT:
            return _file_of(run, name, "text/plain; charset=utf-8")
        if is_plot(name):
            return _file_of(run, name, "image/png")
        return PlainTextResponse("no such file\n", 404)


def _file_of(run: Path, name: str, media_type: str) -> Response:
    """Return a file that lies in the run's folder itself, wherever a link of its name leads."""
    path = run / name
    try:
        if path.resolve().parent == run.resolve():
            with open_file(path) as file:
                content = file.read(_LARGEST + 1)
            if len(content) <= _LARGEST:
                return Response(content, media_type=media_type, headers=_REVALIDATE)
    except (OSError, RuntimeError):
        pass
    return PlainTextResponse("no such file\n", 404)
