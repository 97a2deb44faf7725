"""A way to the server that can be cut: before a message arrives there, or before its answer is back."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Proxy"]


class Proxy:
    """Forwards to the server of a URL.

    Args:
        url: The server's own address.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        #: The address of the same database by way of the proxy.
        self.url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()
        self._armed: tuple[bytes, Literal["before", "after"]] | None = None
        self._closes = False
        self._sockets: list[socket.socket] = []
        self._is_cut_off = self._is_closed = False
        #: How often a connection was cut as asked for.
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(
        self, moment: Literal["before", "after"], mark: bytes, *, then: Literal["goes on", "close"] = "goes on"
    ) -> None:
        """Cuts the connection of the next message that has the mark in it: before the server gets it, or after it has
        answered and before the client gets that. Then others may be made, or all are gone."""
        self._closes = then == "close"
        self._armed = (mark, moment)

    def cut_off(self) -> None:
        """Takes the server away: nothing passes, and nobody is told."""
        self._is_cut_off = True

    def come_back(self) -> None:
        """Ends what was cut off, and forwards again."""
        self._is_cut_off = False
        self._end()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        _close(self._listener)
        self._end()

    def _end(self) -> None:
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            _close(one)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                if self._is_closed:
                    self._end()
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(client, server), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                armed = self._armed
                if armed is not None and armed[0] in data:
                    self._armed = None
                    self.cuts += 1
                    if armed[1] == "after":
                        self._dropped = server
                        self._dropped_one = threading.Event()
                        server.sendall(data)
                        self._dropped_one.wait(10)
                    if self._closes:
                        self.__exit__(None, None, None)
                    break
                if not self._is_cut_off:
                    server.sendall(data)
        _close(client)
        _close(server)

    _dropped: socket.socket | None = None

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self._dropped is server:
                    self._dropped = None
                    self._dropped_one.set()
                    break
                if not self._is_cut_off:
                    client.sendall(data)


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
