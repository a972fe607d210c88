"""A TCP proxy on this machine that can be cut, as if a cable was pulled, or swallow everything like a black hole."""

import contextlib
import socket
import threading
import time

CHUNK = 65_536


class FaultyLink:
    """Listens on ``port`` and passes everything on to a server of this machine, until it is told not to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("localhost", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = threading.Event()  # clear: a black hole
        self._open.set()
        self._refuses = False
        self._ends: set[socket.socket] = set()
        self._target = 0

    def start(self, target_port: int) -> None:
        self._target = target_port
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._refuses = True
        for end in list(self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def swallow(self) -> None:
        """Keep connections open but deliver nothing, neither old nor new."""
        self._open.clear()

    def heal(self) -> None:
        self._refuses = False
        self._open.set()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                if self._refuses:
                    raise OSError
                far = socket.create_connection(("localhost", self._target))
            except OSError:  # cut, or the server is not there: the site will try again
                near.close()
                time.sleep(0.1)
                continue
            self._ends |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                self._open.wait()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            self._ends.discard(end)
