"""A page on this machine that shows what the inbox has, does and waits for. It shows no names."""

import html
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fclseg.errors import FCLSegError
from fclseg.inbox.queue import Queue, ReceivedStudy
from fclseg.inbox.receiver import Receiver
from fclseg.inbox.settings import Settings

HOST = "127.0.0.1"
MOST_ROWS = 200
STYLE = (
    "body{font:16px system-ui;margin:24px;max-width:1000px}"
    "td,th{text-align:left;padding:4px 12px 4px 0;vertical-align:top}"
)


class StatusPage:
    def __init__(self, settings: Settings, queue: Queue, receiver: Receiver):
        self.settings, self.queue, self.receiver = settings, queue, receiver
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        if self.settings.status_port is None:
            return
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = {f"{name}:{page.settings.status_port}" for name in (HOST, "localhost")}
                if self.headers.get("Host") not in known:  # a page of another site that points a name here
                    self.send_error(403)
                    return
                content = page.render().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        try:
            self._server = ThreadingHTTPServer((HOST, self.settings.status_port), Handler)
        except OSError as error:
            raise FCLSegError(f"--status-port {self.settings.status_port}: {error.strerror}; choose another") from None
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def render(self) -> str:
        studies = sorted(self.queue.studies(), key=lambda one: one.changed, reverse=True)
        counts: dict[str, int] = {}
        for one in studies:
            counts[one.state] = counts.get(one.state, 0) + 1
        summary = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "no studies"
        node = self.settings.send_to
        to = f"{node.title} at {node.host}:{node.port}" if node else "nowhere"
        to += " (dry run: nothing is sent)" if self.settings.dry_run else ""
        others = sum(self.receiver.ignored.values())
        rows = "".join(_row(one) for one in studies[:MOST_ROWS])
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5><title>Inbox</title>"
            f"<style>{STYLE}</style><h1>{html.escape(self.settings.title)}</h1><p>{summary}. Results go to "
            f"{html.escape(to)}. {others} objects that are no MR images were not kept.</p>"
            f"<table><tr><th>Study<th>State<th>Images<th>Sent<th>Changed<th>Reason</tr>{rows}</table></html>"
        )


def _row(study: ReceivedStudy) -> str:
    when = time.strftime("%d.%m. %H:%M:%S", time.localtime(study.changed))
    sent = f"{len(study.sent)} of {len(study.outgoing)}{', listed' * study.listed}" if study.outgoing else ""
    cells = (study.key, study.state, study.images, sent, when, study.reason)
    return "<tr>" + "".join(f"<td>{html.escape(str(cell))}" for cell in cells) + "</tr>"
