"""Two hosts that can be cut off: network namespaces on one bridge, and a way from there to the database."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


class Network:
    """A bridge with an address that every host on it reaches, and what is forwarded from there.

    Skips the test where namespaces cannot be made.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._name = f"tj{secrets.token_hex(3)}"
        self._net = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"
        self._made: list[list[str]] = []
        self._sockets: list[socket.socket] = []
        self._hosts: Final = {host: f"{self._name}-{host}" for host in hosts}
        if os.geteuid() != 0 or shutil.which("ip") is None:
            pytest.skip("network namespaces need root and `ip`")
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.remove()
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")

    def inside(self, host: str) -> list[str]:
        """What a command is run by to run on a host."""
        return ["ip", "netns", "exec", self._hosts[host]]

    def cut(self, host: str) -> None:
        """Takes a host's cable out."""
        _ip("link", "set", f"{self._hosts[host]}-o", "down")

    def mend(self, host: str) -> None:
        """Puts it in again."""
        _ip("link", "set", f"{self._hosts[host]}-o", "up")

    def forwarded(self, url: str) -> str:
        """The URL by which the hosts reach a server that listens on the loopback address alone."""
        server = urlsplit(url)
        listener = socket.create_server((f"{self._net}.1", 0))
        self._sockets.append(listener)
        target = (server.hostname or "", server.port or 5432)
        threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
        port = listener.getsockname()[1]
        return server._replace(netloc=f"{server.username}@{self._net}.1:{port}").geturl()

    def remove(self) -> None:
        """Takes everything down."""
        for one in self._sockets:
            one.close()
        for command in reversed(self._made):
            subprocess.run(command, check=False, capture_output=True)

    def _make(self) -> None:
        self._add(["link", "add", self._name, "type", "bridge"], ["link", "del", self._name])
        _ip("addr", "add", f"{self._net}.1/24", "dev", self._name)
        _ip("link", "set", self._name, "up")
        for number, host in enumerate(self._hosts.values(), 2):
            self._add(["netns", "add", host], ["netns", "del", host])
            self._add(
                ["link", "add", f"{host}-o", "type", "veth", "peer", "name", f"{host}-i"], ["link", "del", f"{host}-o"]
            )
            _ip("link", "set", f"{host}-i", "netns", host)
            _ip("link", "set", f"{host}-o", "master", self._name, "up")
            _ip("-n", host, "addr", "add", f"{self._net}.{number}/24", "dev", f"{host}-i")
            _ip("-n", host, "link", "set", "lo", "up")
            _ip("-n", host, "link", "set", f"{host}-i", "up")

    def _add(self, make: list[str], undo: list[str]) -> None:
        _ip(*make)
        self._made.append(["ip", *undo])

    def _accept(self, listener: socket.socket, target: tuple[str, int]) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(target)
            self._sockets += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for one in (source, target):
        one.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
