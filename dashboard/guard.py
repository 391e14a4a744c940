"""What holds for every request and answer, whatever the route."""

import ipaddress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


class Guard:
    """Refuses what is no GET and, on loopback, what came by a name of another host.

    A page of a foreign site can have its own name point at 127.0.0.1 (DNS rebinding) and would then
    read us as itself; its requests carry that name in `Host`.
    """

    def __init__(self, app: ASGIApp, is_loopback_only: bool) -> None:
        """Guard an application; with `is_loopback_only` it is asked for by loopback names."""
        self._app = app
        self._is_loopback_only = is_loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on and add the headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        if scope["method"] != "GET":
            await _refuse(send_guarded, 405, "only GET is served", [(b"allow", b"GET")])
        elif self._is_loopback_only and not _is_loopback(_host(scope)):
            await _refuse(send_guarded, 403, "expected a Host of localhost, 127.0.0.1 or [::1]")
        else:
            await self._app(scope, receive, send_guarded)


def _host(scope: Scope) -> str:
    """Return the Host header without its port; empty if there is not exactly one."""
    found = [value for name, value in scope["headers"] if name == b"host"]
    host = found[0].decode("latin-1").lower() if len(found) == 1 else ""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".") == "localhost"


async def _refuse(
    send: Send, status: int, reason: str, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    body = f"{reason}\n".encode()
    start = [(b"content-type", b"text/plain; charset=utf-8"), *(headers or [])]
    start.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
