"""The connection between a client and a server, under a test's control: it can be cut, and stay so."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Cable:
    """Passes bytes between clients that connect to `address` and a server."""

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self.server = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._whole = True
        self._fuse: int | None = None
        self.passed = 0
        """Bytes, in both directions."""
        self._heard = threading.Event()
        self._heard.set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Ends all connections; new ones can be made."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _end(end)

    def cut_after(self, size: int) -> None:
        """Cuts once, after this many more bytes."""
        with self._lock:
            self._fuse = self.passed + size

    def pull(self) -> None:
        """Cuts, and refuses connections until `plug`."""
        self._whole = False
        self.cut()

    def plug(self) -> None:
        self._whole = True

    def silence(self) -> None:
        """Clients receive nothing from the server, until `listen`."""
        self._heard.clear()

    def listen(self) -> None:
        self._heard.set()

    def close(self) -> None:
        self.listen()
        self.pull()
        _end(self._listening)
        self._listening.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listening.accept()
            except OSError:
                return
            if not self._whole:
                ours.close()
                continue
            try:
                theirs = socket.create_connection(self.server)
            except OSError:
                ours.close()
                continue
            with self._lock:
                self._pairs.append((ours, theirs))
            for source, target, up in ((ours, theirs, True), (theirs, ours, False)):
                threading.Thread(target=self._pump, args=(source, target, up), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if not up:
                    self._heard.wait()
                target.sendall(data)
                if self._burns(len(data)):
                    self.cut()
        except OSError:
            pass
        _end(target)

    def _burns(self, size: int) -> bool:
        with self._lock:
            self.passed += size
            burnt = self._fuse is not None and self.passed >= self._fuse
            if burnt:
                self._fuse = None
            return burnt


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
