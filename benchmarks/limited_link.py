"""A TCP proxy on this machine that lets a limited number of bytes per second pass in each direction."""

import contextlib
import socket
import threading
import time

CHUNK = 16_384


class Limit:
    """Bytes per second, shared by all connections in one direction."""

    def __init__(self, rate: float):
        self._rate, self._free, self._lock = rate, 0.0, threading.Lock()

    def wait(self, size: int) -> None:
        """Return when the link has carried ``size`` more bytes."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._rate
            free = self._free
        time.sleep(max(0.0, free - time.monotonic()))


class LimitedLink:
    """Listens on ``port`` and passes everything on to a server of this machine, at ``rate`` bytes per second."""

    def __init__(self, rate: float):
        self._listener = socket.create_server(("localhost", 0))
        self.port: int = self._listener.getsockname()[1]
        self._up, self._down = Limit(rate), Limit(rate)
        self._target = 0

    def start(self, target_port: int) -> None:
        self._target = target_port
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # of a listener that was closed
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("localhost", self._target))
                except OSError:  # the server is not there yet: the site will try again
                    near.close()
                    continue
                for source, sink, limit in ((near, far, self._up), (far, near, self._down)):
                    threading.Thread(target=_pump, args=(source, sink, limit), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, limit: Limit) -> None:
    """Until one end closes, which closes the other."""
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            limit.wait(len(data))
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
