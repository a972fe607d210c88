"""The web server of a page of this machine: bound to 127.0.0.1, one-time links, no file but the page's own.

A link works once: it gives the browser a cookie, and the next link is printed. So a link in a history, a screenshot or
a log opens nothing. Requests with another host name or from other pages are refused.
"""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from fclseg.errors import FCLSegError

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
ADDRESS = "127.0.0.1"
LARGEST_BODY = 16 << 20
NEEDS_LINK = "This page opens with the link that '{}' prints. Each link works once; the latest one is valid."


class PageAnswers(Protocol):
    """What a page may ask for below ``/api/``."""

    def find(self, method: str, path: str) -> tuple[Callable[..., Any], list[int]] | None: ...


@dataclass(frozen=True)
class Page:
    folder: Path  # its files
    command: str  # that opens it


class PageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, page: Page, port: int, answers: PageAnswers, tell: Callable[[str], None] = print):
        super().__init__((ADDRESS, port), Handler)
        self.page, self.answers, self.tell = page, answers, tell
        self.cookie = f"fclseg_{self.server_port}", secrets.token_urlsafe(32)
        self.token = secrets.token_urlsafe(16)

    @property
    def link(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/?token={self.token}"

    def admit(self, token: str) -> bool:
        """Whether a link is the latest one. It is used up then."""
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return False
        self.token = secrets.token_urlsafe(16)
        self.tell(f"opened; the link for another browser: {self.link}")
        return True


class Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "fclseg", ""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query))
        hosts = {f"{name}:{self.server.server_port}" for name in (ADDRESS, "localhost")}
        origin = self.headers.get("Origin")
        if self.headers.get("Host") not in hosts or (origin and origin.removeprefix("http://") not in hosts):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"wrong host")
        elif method == "GET" and address.path == "/" and self.server.admit(query.get("token", "")):
            name, value = self.server.cookie
            self._send(
                HTTPStatus.SEE_OTHER,
                "text/plain",
                b"",
                {"Location": "/", "Set-Cookie": f"{name}={value}; HttpOnly; SameSite=Strict; Path=/"},
            )
        elif not self._has_cookie():
            self._send(HTTPStatus.FORBIDDEN, "text/plain", NEEDS_LINK.format(self.server.page.command).encode())
        elif address.path.startswith("/api/"):
            self._call(method, address.path, query)
        else:
            self._file(address.path)

    def _has_cookie(self) -> bool:
        name, value = self.server.cookie
        given = dict(part.strip().partition("=")[::2] for part in self.headers.get("Cookie", "").split(";"))
        return secrets.compare_digest(given.get(name, "").encode(), value.encode())

    def _call(self, method: str, path: str, query: dict[str, str]) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        found = self.server.answers.find(method, path)
        if found is None or not 0 <= length <= LARGEST_BODY:
            self.close_connection = True
            self._send_json(HTTPStatus.NOT_FOUND, {"error": "there is no such address"})
            return
        body = self.rfile.read(length)
        function, numbers = found
        try:
            answer = function(query, body, *numbers)
        except (FCLSegError, ValueError, OSError) as error:
            self._send_json(getattr(error, "http_status", HTTPStatus.BAD_REQUEST), {"error": str(error)})
        else:
            if isinstance(answer, bytes):
                self._send(HTTPStatus.OK, "application/octet-stream", answer)
            else:
                self._send_json(HTTPStatus.OK, answer)

    def _file(self, path: str) -> None:
        name = path.removeprefix("/") or "index.html"
        known = {file.name: file for file in self.server.page.folder.iterdir() if file.suffix in TYPES}
        if name not in known:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such file")
            return
        self._send(HTTPStatus.OK, f"{TYPES[known[name].suffix]}; charset=utf-8", known[name].read_bytes())

    def _send_json(self, status: HTTPStatus, content: object) -> None:
        self._send(status, "application/json", json.dumps(content).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Nothing: addresses and times of requests are nobody's business."""
