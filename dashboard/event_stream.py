"""Server-sent events: a whole snapshot first, then what has changed, to a watcher that reads.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from dashboard.watchers import Watchers

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_RETRY = b"retry: 1000\n\n"


class EventStream:
    """An ASGI response. Whoever does not take an update within `send_s` is dropped.

    A watcher that comes back gets the whole snapshot, whatever its Last-Event-ID: it is no larger
    than what it would have to be told, and never wrong.
    """

    def __init__(self, watchers: Watchers, send_s: float = 20.0, beat_s: float = 10.0) -> None:
        """Stream the board of `watchers`; something is sent every `beat_s` at least."""
        self._watchers = watchers
        self._send_s = send_s
        self._beat_s = beat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the watcher leaves, is too slow, or the server ends."""
        tasks = [
            asyncio.create_task(self._feed(send)),
            asyncio.create_task(_until_gone(receive)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self, send: Send) -> None:
        async with self._watchers.watching():
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._send(send, _RETRY)
            seen = 0
            while not self._watchers.is_closed:
                board = self._watchers.board
                message, since, seen = board.message(seen), seen, board.sequence
                if since == 0 or seen != since:
                    head = f"id: {seen}\nevent: state\ndata: ".encode()
                    await self._send(send, head + message + b"\n\n")
                has_news = await self._watchers.news(seen, self._beat_s)
                if not has_news and not self._watchers.is_closed:
                    await self._send(send, b"event: beat\ndata: {}\n\n")
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send, body: bytes) -> None:
        message: dict[str, Any] = {"type": "http.response.body", "body": body, "more_body": True}
        async with asyncio.timeout(self._send_s):
            await send(message)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
