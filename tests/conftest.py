"""Guards over the whole suite: the environment is given back, and no process outlives the test that started it."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import psutil
import pytest
from hypothesis import settings

from turn_journal_runtime.bridge import default_client
from turn_journal_runtime.bridge.supervisor import supervisors

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

SOAK: Final = os.environ.get("TURN_JOURNAL_SOAK") == "1"
# A busy machine is no reason to fail, and a failure can be repeated from what is printed.
settings.register_profile("suite", deadline=None, print_blob=True, max_examples=5_000 if SOAK else 100)
settings.load_profile("suite")

#: What a child may take to end after its test: the core finishes what is in flight within 5 s.
CHILD_SECONDS: Final = 8.0

#: Python keeps these for the life of the process.
_HELPERS: Final = {"multiprocessing.resource_tracker", "multiprocessing.forkserver"}
_STARTS: Final = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"}


# A shell that starts the suite in the background has it ignored, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# As under `nohup`.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class _Children:
    """Looks at processes only in tests that start some: to look costs milliseconds, and most tests start none."""

    def __init__(self) -> None:
        self.before: set[int] | None = None
        self.watching = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: object) -> None:
        if event in _STARTS and self.watching and self.before is None:
            self.before = _descendants()

    def left(self) -> set[int]:
        """What the test started, less the processes of clients that are still open: those are of wider fixtures."""
        if self.before is None:
            return set()
        left = _descendants() - self.before - {one.pid for one in supervisors()}
        return {pid for pid in left if _is_running(pid) and not _HELPERS.intersection(_command(pid))}


_children = _Children()


@pytest.fixture(autouse=True)
def _no_child_outlives_its_test() -> Iterator[None]:
    _children.before, _children.watching = None, True
    yield
    _children.watching = False
    deadline = time.monotonic() + CHILD_SECONDS
    while left := _children.left():
        gc.collect()  # a client that nobody holds any more lets its process go
        if time.monotonic() > deadline:
            names = [" ".join(_command(pid))[:200] for pid in left]
            for pid in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).kill()
            pytest.fail(f"the test left processes behind: {names}")
        time.sleep(0.02)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A failed test fails no later one: what it left open is let go with its traceback, and would be missed there."""
    failed = item.session.testsfailed
    result = yield
    if item.session.testsfailed > failed:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)  # pytest keeps them until the next test runs
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()
    return result


@pytest.fixture(autouse=True)
def _environment_is_given_back() -> Iterator[None]:
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="session", autouse=True)
def _default_client_is_closed() -> Iterator[None]:
    yield
    default_client().close()


class PostgresServer:
    """The server that `tests/postgres_server.py` keeps while this process lives."""

    def __init__(self) -> None:
        program = [sys.executable, str(Path(__file__).with_name("postgres_server.py"))]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        #: A database that is there, and stays as it is: tests make their own.
        self.url: Final = self._answer()

    def restart(self) -> None:
        """Ends the server as a power cut does, and waits until it is up again; skips the test when it is not ours."""
        assert self._process.stdin is not None
        self._process.stdin.write("restart\n")
        self._process.stdin.flush()
        if self._answer() != "restarted":
            pytest.skip("the server of TEST_POSTGRES_URL is not restarted")

    def close(self) -> None:
        """Ends the server."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            pytest.fail("the PostgreSQL server did not start: run `python tests/postgres_server.py` to see why")
        return line


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process; `TEST_POSTGRES_URL` names another."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database of this test."""
    import psycopg
    from psycopg.sql import SQL, Identifier

    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    yield urlsplit(postgres_server.url)._replace(path=f"/{name}").geturl()
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


class Eventually(Protocol):
    """Waits until a condition holds."""

    def __call__(self, condition: Callable[[], object], seconds: float = 30.0) -> None: ...


@pytest.fixture
def eventually() -> Eventually:
    """Waits until a condition holds, and fails the test when it does not in time."""

    def wait(condition: Callable[[], object], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {seconds:g} s")
            time.sleep(0.01)

    return wait


def _descendants() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def _is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _command(pid: int) -> list[str]:
    try:
        return " ".join(psutil.Process(pid).cmdline()).replace("(", " ").split()
    except psutil.Error:
        return []


#: What takes long goes first, so that no worker is left alone with it at the end.
_LONG = ("tests/chaos/", "tests/package/", "tests/python/turns_postgres/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))
