"""The local web server of ``vista review``: it answers this machine only, and only with the token in the address.

Every request must name this server as its host (against DNS rebinding); one that changes something must come from our
own page (against forged requests of other sites). The page may load nothing but its own files.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from vista.review import decisions, retrain
from vista.review.session import STATUS, Conflict, Filter, Session

HOST = "127.0.0.1"
MOST_BYTES = 2**20  # of a request
ASSETS = {"": ("page.html", "text/html"), "review.js": ("review.js", "text/javascript"),
          "review.css": ("review.css", "text/css"), "icon.svg": ("icon.svg", "image/svg+xml")}  # fmt: skip
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
Answer = Callable[[Request], Awaitable[Response]]


class Guard:
    """Checks host, origin and token of every request before anything else reads it."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        why = self._objection(Request(scope))
        response: ASGIApp = self.app if why is None else PlainTextResponse(why, 403)

        async def protected(message: Any) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(each for each in extra if each[0] not in names)]
            await send(message)

        await response(scope, receive, protected)

    def _objection(self, request: Request) -> str | None:
        host = request.headers.get("host", "")
        if host not in self.hosts:
            return "This server answers only at the address that `vista review` printed."
        given = request.url.path.split("/")[1]
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            return "Open the address that `vista review` printed: it contains the key to this page."
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "Requests of other sites are rejected."
        if request.method not in ("GET", "HEAD") and request.headers.get("origin") != f"http://{host}":
            return "Decisions are accepted only from the page itself."
        return None


def make_app(session: Session, token: str, port: int, finish: Callable[[], None]) -> ASGIApp:
    """The web application.

    Args:
        session: The review.
        token: First part of every path.
        port: The port of the server, for the check of the host.
        finish: Called when the reviewer ends the review.
    """

    async def start(_request: Request) -> Response:
        return JSONResponse(session.start())

    async def rows(request: Request) -> Response:
        query = request.query_params
        try:
            given, suggested = (int(query[name]) if query.get(name) else None for name in ("given", "suggested"))
            which = Filter(
                given,
                suggested,
                low=float(query.get("low", 0.5)),
                high=float(query.get("high", 1.0)),
                status=query.get("status") or None,
            )
            if which.status not in (None, *STATUS):
                raise ValueError(f"status must be one of {', '.join(STATUS)}")
            numbers = {name: int(query[name]) for name in ("after", "before", "limit") if name in query}
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse(session.rows(which, **numbers))

    async def image(request: Request) -> Response:
        sample = request.path_params["sample"]
        if not session.viewer.is_image or sample not in session.rank:
            return PlainTextResponse("no such image", 404)
        small = request.query_params.get("size") == "small"
        content = await run_in_threadpool(session.viewer.png, sample, thumbnail=small)
        return Response(content, media_type="image/png", headers={"cache-control": "private, max-age=600"})

    async def decide(request: Request) -> Response:
        try:
            wanted = await _read_decisions(request)
            return JSONResponse({"rows": session.decide(wanted)})
        except Conflict as error:
            return JSONResponse({"error": str(error), "conflict": error.rows}, 409)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        except OSError as error:
            return JSONResponse({"error": f"Not saved: {error.strerror or error}."}, 507)

    async def end(_request: Request) -> Response:
        commands = retrain.commands(session.folder, session.log.path)
        decided, skipped = decisions.decided_and_skipped(session.log.current)
        answer = {"decided": decided, "skipped": skipped, "file": str(session.log.path), "commands": commands}
        return JSONResponse(answer, background=BackgroundTask(finish))

    routes = [Route(f"/{token}/{path}", _asset(*file)) for path, file in ASSETS.items()]
    routes += [
        Route(f"/{token}/start", start),
        Route(f"/{token}/rows", rows),
        Route(f"/{token}/image/{{sample:int}}", image),
        Route(f"/{token}/decide", decide, methods=["POST"]),
        Route(f"/{token}/finish", end, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, port)


def _asset(name: str, kind: str) -> Answer:
    content = resources.files("vista.review").joinpath("assets", name).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(content, media_type=kind)

    return answer


async def _read_decisions(request: Request) -> list[dict[str, Any]]:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise ValueError("the request must be JSON")
    if int(request.headers.get("content-length") or MOST_BYTES + 1) > MOST_BYTES:
        raise ValueError(f"the request must have at most {MOST_BYTES} bytes")
    values = await request.json()
    wanted = values.get("decisions") if isinstance(values, dict) else None
    if not isinstance(wanted, list) or not wanted or not all(isinstance(each, dict) for each in wanted):
        raise ValueError("decisions must be a list of objects")
    return wanted


def listen(port: int) -> socket.socket:
    """Open the port on this machine alone; 0 takes a free one."""
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be 0 to 65535, got {port}")
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((HOST, port))
        opened.listen(128)
    except OSError as error:
        opened.close()
        raise ValueError(
            f"port {port} cannot be used ({error.strerror}): choose another --port, or leave it out"
        ) from error
    return opened


def serve(session: Session, opened: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve the page until the reviewer ends the review, or Ctrl-C.

    Args:
        session: The review.
        opened: A port of :func:`listen`.
        ready: Called with the address of the page once it can be opened.
    """
    token, port = secrets.token_urlsafe(24), int(opened.getsockname()[1])
    app = make_app(session, token, port, lambda: setattr(server, "should_exit", True))
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    ready(f"http://{HOST}:{port}/{token}/")
    server.run(sockets=[opened])
