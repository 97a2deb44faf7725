"""The file: where it may be, what it looks like, and that nothing spoils it. run-journal.md, sections 1 and 5."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    JournalCorruptError,
    JournalStoreError,
)
from turn_journal_runtime.run_journal import KIND_ITERATION, DurableRun, JournalEvent, RunJournal, filesystem
from turn_journal_runtime.run_journal.filesystem import file_system_of
from turn_journal_runtime.run_journal.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.python.run_journal.conftest import Address


def iteration(run_id: str, seq: int) -> JournalEvent:
    return JournalEvent(run_id, seq, KIND_ITERATION, {"index": seq})


def bytes_beside(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}


def run_python(program: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, **options)


# Where it is


def test_the_default_place_is_under_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURN_JOURNAL_HOME", str(tmp_path / "home"))
    with RunJournal() as journal:
        assert journal.path == str(tmp_path / "home" / "runs" / "journal.db")
    monkeypatch.delenv("TURN_JOURNAL_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert filesystem.default_path().parts[-2:] == ("runs", "journal.db")


@pytest.mark.skipif(os.name != "posix", reason="has no /dev/null")
def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    for place, what in (
        (tmp_path, rf"is a folder: name a file in it, as {tmp_path}/runs\.db"),
        ("/dev/null", "no plain file"),
    ):
        with pytest.raises(JournalStoreError, match=what) as raised:
            RunJournal(place)
        assert (raised.value.kind, raised.value.details) == ("store_unsafe_path", {"path": str(place)})
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_driven_in_a_journal_and_not_in_its_path() -> None:
    with pytest.raises(InvalidJournalError, match=r"in a RunJournal, not in a str: with RunJournal\(path\)"):
        DurableRun("runs.db", "r")  # type: ignore[arg-type]


def test_a_relative_path_stays_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with RunJournal("here.db") as journal:
        monkeypatch.chdir(tmp_path / "elsewhere")
        with DurableRun(journal, "r") as run:
            run.iteration(0)
    assert (tmp_path / "here.db").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_new_files_are_the_users_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        with RunJournal(path) as journal, DurableRun(journal, "r") as run:
            run.iteration(0)
            modes = {
                str(file.relative_to(path.parent)): stat.S_IMODE(file.stat().st_mode)
                for file in sorted(path.parent.rglob("*"))
                if file.is_file()
            }
            folders = [path.parent, Path(f"{path}.owners")]
            assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700, 0o700]
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert {"journal.db", "journal.db-wal", "journal.db-shm"} < set(modes)


def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalStoreError):
        RunJournal(tmp_path)


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /home rw - nfs4 server:/home rw
31 30 0:27 / /home/ann/local rw shared:1 - xfs /dev/vdb rw
32 22 0:28 / /mnt/with\\040space rw - fuse.sshfs me@host:/ rw
33 22 0:29 / /mnt/twice rw - cifs //host/share rw
34 22 0:30 / /mnt/twice rw - btrfs /dev/vdc rw
a line that is none
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/var/x.db", "ext4"),
        ("/home/ann/x.db", "nfs4"),
        ("/homework/x.db", "ext4"),
        ("/home/ann/local/x.db", "xfs"),
        ("/mnt/with space/x.db", "fuse.sshfs"),
        ("/mnt/twice/x.db", "btrfs"),
    ],
)
def test_the_file_system_of_a_place_is_that_of_its_nearest_mount(place: str, kind: str) -> None:
    assert file_system_of(place, MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ceph"])
def test_a_network_file_system_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:26 / {tmp_path}/far rw - {kind} server:/ rw\n")
    monkeypatch.setattr(filesystem, "_MOUNTS", mounts)
    with pytest.raises(JournalStoreError, match="TURN_JOURNAL_HOME") as caught:
        RunJournal(tmp_path / "far" / "journal.db")
    assert caught.value.kind == "store_unsupported"
    assert caught.value.details["file_system"] == kind.removeprefix("fuse.")
    assert not (tmp_path / "far").exists()
    with RunJournal(tmp_path / "near" / "journal.db"):
        pass


# Its settings


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("power", 2)])
def test_the_settings_in_use_are_those_of_the_durability(path: Path, durability: Any, synchronous: int) -> None:
    # SQLite's documentation: in WAL mode, FULL syncs the log with every commit, so that a commit survives power loss;
    # NORMAL syncs it with checkpoints, so that a commit survives the process.
    for _ in range(2):
        with RunJournal(path, durability=durability) as journal:
            journal.append(iteration("r", 0))
            settings = journal.settings
            assert (settings["journal_mode"], settings["synchronous"]) == ("wal", synchronous)
            assert settings["busy_timeout"] >= 10_000
            assert journal.durability == durability


def test_an_unknown_durability_is_refused(path: Path) -> None:
    with pytest.raises(InvalidJournalError, match="durability"):
        RunJournal(path, durability="none")  # type: ignore[arg-type]
    assert not path.exists()
    with pytest.raises(InvalidJournalError, match="durability"):
        RunJournal("postgresql://nobody@127.0.0.1:1/none", durability="none")  # type: ignore[arg-type]


@pytest.mark.usefixtures("path")
def test_every_transaction_that_writes_begins_as_a_writer(journal: RunJournal) -> None:
    """A transaction that begins with a read can fail at once when another writer comes between."""
    assert journal._database._cursor is not None
    statements: list[str] = []
    journal._database._cursor.connection.set_trace_callback(statements.append)
    journal.open_run("r")
    journal.append_many([iteration("r", 5), iteration("r", 6)])
    with DurableRun(journal, "s") as run:
        run.tool("t", {}, lambda: 1)
        with pytest.raises(ValueError, match="no"):
            run.tool("t", {}, _raise)
    journal.fork("s", "f", upto=0)
    journal.import_run(journal.export("s"), overwrite=True)
    journal.uncertain("r")
    journal.delete_run("s")
    inside: str | None = None
    writers = ("INSERT", "UPDATE", "DELETE")
    begun = [statement for statement in statements if statement.startswith("BEGIN")]
    for statement in statements:
        if statement.startswith("BEGIN"):
            inside = statement
        elif statement in ("COMMIT", "ROLLBACK"):
            inside = None
        elif statement.startswith(writers):
            assert inside in (None, "BEGIN IMMEDIATE"), statement
    assert begun.count("BEGIN IMMEDIATE") >= 6


def _raise() -> None:
    raise ValueError("no")


def test_a_writer_waits_for_the_writer_before_it(journal: RunJournal, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO runs (run_id, created_at, updated_at) VALUES ('other', 0, 0)")
    done: list[str] = []

    def write() -> None:
        journal.open_run("r")
        journal.append_many([iteration("r", 0)])
        done.append("written")

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(0.2)
    assert done == []
    other.execute("COMMIT")
    thread.join(20)
    other.close()
    assert (done, journal.interrupted_runs()) == (["written"], ["other", "r"])


# What is no journal, or not ours to write


@pytest.mark.parametrize(
    "content", [b"not a database, but a text of some length\n" * 50, b"SQLite format 3\0" + b"\xff" * 4096, b"x"]
)
def test_a_file_that_is_no_database_is_refused_untouched(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(JournalCorruptError, match="left as it is"):
        RunJournal(path)
    assert bytes_beside(path) == {"journal.db": content}


def test_a_damaged_page_is_an_error_and_no_empty_result(path: Path) -> None:
    with RunJournal(path) as journal:
        journal.append_many([iteration("r", n) for n in range(5000)])
    content = bytearray(path.read_bytes())
    for page in range(6, len(content) // 2048):
        content[page * 2048 : page * 2048 + 64] = b"\x55" * 64
    path.write_bytes(bytes(content))
    with RunJournal(path) as journal:
        for read in (journal.events, journal.replay_index):
            with pytest.raises(JournalCorruptError):
                read("r")


@pytest.mark.parametrize(
    ("table", "version", "said"),
    [("runs", 0, "no run journal"), ("orders", 0, "of something else"), ("orders", 7, "of something else")],
)
def test_a_database_of_somebody_else_is_refused_untouched(path: Path, table: str, version: int, said: str) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute(f"CREATE TABLE {table} (id INTEGER, distance REAL)")
        other.execute(f"PRAGMA user_version = {version}")
    other.close()
    before = bytes_beside(path)
    with pytest.raises(JournalCorruptError, match=said):
        RunJournal(path)
    assert bytes_beside(path) == before


def test_a_newer_file_is_refused_with_its_bytes_unchanged(path: Path) -> None:
    with RunJournal(path) as journal:
        journal.open_run("r")
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.close()
    before = path.read_bytes()
    with pytest.raises(JournalStoreError, match="Upgrade turn-journal-runtime") as caught:
        RunJournal(path)
    assert caught.value.kind == "store_unsupported"
    assert path.read_bytes() == before


def test_a_newer_version_that_stands_only_in_the_log_is_seen_too(path: Path) -> None:
    with RunJournal(path) as journal:
        journal.open_run("r")
    newer = sqlite3.connect(path, isolation_level=None)
    newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    files = [path, Path(f"{path}-wal")]
    copy = path.with_name("copied.db")
    shutil.copy(files[0], copy)
    shutil.copy(files[1], f"{copy}-wal")
    newer.close()
    before = (copy.read_bytes(), Path(f"{copy}-wal").read_bytes())
    with pytest.raises(JournalStoreError, match="Upgrade"):
        RunJournal(copy)
    assert (copy.read_bytes(), Path(f"{copy}-wal").read_bytes()) == before


@pytest.mark.usefixtures("path")
def test_a_full_disk_is_a_typed_error_and_loses_nothing(journal: RunJournal) -> None:
    journal.append(iteration("r", 0))
    journal._database.read("PRAGMA max_page_count = 1")
    with pytest.raises(JournalStoreError, match="full") as caught:
        journal.append_many(
            [JournalEvent("r", n, KIND_ITERATION, {"index": n, "fill": "x" * 9000}) for n in range(1, 9)]
        )
    assert caught.value.kind == "store_full"
    assert [event.seq for event in journal.events("r")] == [0]
    journal._database.read("PRAGMA max_page_count = 1000000")
    journal.append(iteration("r", 1))
    assert journal.last_iteration("r") == 1


NOBODY = 65534


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that a user without rights can reach."""
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith(str(tmp_path.parents[2])):
            folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path


READ_ONLY = """
    import os, sys
    from turn_journal_runtime.errors import JournalStoreError
    from turn_journal_runtime.run_journal import *
    if os.getuid() == 0:
        os.setuid(int(sys.argv[2]))
    try:
        journal = RunJournal(sys.argv[1])
        journal.append(JournalEvent("r", 9, KIND_ITERATION, {"index": 9}))
    except JournalStoreError as error:
        print(error.kind, error)
"""


@pytest.mark.process
def test_a_read_only_folder_is_a_typed_error(shared: Path) -> None:
    folder = shared / "locked"
    folder.mkdir(mode=0o555)
    folder.chmod(0o555)
    done = run_python(READ_ONLY, folder / "journal.db", NOBODY)
    assert done.stdout.startswith("store_io_failed"), done
    assert "cannot be made" in done.stdout
    assert list(folder.iterdir()) == []


@pytest.mark.process
def test_a_read_only_file_is_a_typed_error_and_stays_as_it_is(shared: Path) -> None:
    folder = shared / "locked"
    folder.mkdir()
    with RunJournal(folder / "journal.db") as journal:
        journal.append(iteration("r", 0))
    (folder / "journal.db").chmod(0o444)
    folder.chmod(0o555)
    before = bytes_beside(folder / "journal.db")
    done = run_python(READ_ONLY, folder / "journal.db", NOBODY)
    folder.chmod(0o755)
    assert done.stdout.startswith("store_io_failed"), done
    assert "copy the file, and its -wal beside it" in done.stdout
    assert bytes_beside(folder / "journal.db") == before


# Forks


FORK = """
    import os, sys, threading
    from turn_journal_runtime.errors import TurnBusyError
    from turn_journal_runtime.run_journal import *
    journal = RunJournal(sys.argv[1])
    journal.append(JournalEvent("parent", 0, KIND_ITERATION, {"index": 0}))
    run = DurableRun(journal, "driven")
    run.tool("t", {}, lambda: "parent")
    stop = threading.Event()
    def write():
        n = 1
        while not stop.is_set():
            journal.append(JournalEvent("thread", n, KIND_ITERATION, {"index": n}))
            n += 1
    thread = threading.Thread(target=write)
    thread.start()
    children = []
    for child in range(6):
        pid = os.fork()
        if pid == 0:
            try:
                run.tool("t", {}, lambda: "child")
            except TurnBusyError:
                pass
            else:
                os._exit(3)
            if "driven" in journal.interrupted_runs():
                os._exit(4)
            for n in range(50):
                journal.append(JournalEvent(f"child {child}", n, KIND_ITERATION, {"index": n}))
            # Every way out: at once, through the interpreter's end, and after closing.
            if child % 3 == 0:
                os._exit(0)
            if child % 3 == 1:
                journal.close()
            del run
            sys.exit(0)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    stop.set()
    thread.join()
    assert codes == [0] * 6, codes
    assert run.tool("t", {}, lambda: "parent still") == "parent still"
    run.finish()
    print("ok")
"""


@pytest.mark.process
def test_a_forked_child_opens_its_own_connection_and_drives_nothing_of_its_parents(address: Address) -> None:
    done = run_python(FORK, address)
    assert done.stdout.endswith("ok\n"), done.stderr
    with RunJournal(address) as journal:
        if isinstance(address, Path):
            assert journal._database.read("PRAGMA integrity_check") == [("ok",)]
        for child in range(6):
            assert len(journal.events(f"child {child}")) == 50
        assert [event.payload.get("result") for event in journal.events("driven")][1::2] == ["parent", "parent still"]


# Backups


def test_a_backup_of_a_journal_in_use_is_whole(journal: RunJournal, path: Path) -> None:
    stop = threading.Event()
    acknowledged = [0]

    def write() -> None:
        while not stop.is_set():
            journal.append(iteration("r", acknowledged[0]))
            acknowledged[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            before = acknowledged[0]
            journal.backup(path.with_name(f"copy-{number}.db"))
            with RunJournal(path.with_name(f"copy-{number}.db")) as copy:
                assert copy._database.read("PRAGMA integrity_check") == [("ok",)]
                events = copy.events("r")
                assert len(events) >= before
                assert [event.seq for event in events] == list(range(len(events)))
    finally:
        stop.set()
        writer.join()
    assert stat.S_IMODE(path.with_name("copy-0.db").stat().st_mode) == 0o600


def test_a_backup_replaces_nothing(journal: RunJournal, path: Path) -> None:
    target = path.with_name("copy.db")
    target.write_text("mine")
    with pytest.raises(JournalConflictError, match="nothing is replaced"):
        journal.backup(target)
    assert target.read_text() == "mine"
    with pytest.raises(JournalStoreError):
        journal.backup(path.parent / "copy.db" / "below a file")
    assert not [file for file in path.parent.iterdir() if file.name.startswith(".")], "nothing is left behind"


# Many at once


def test_many_open_a_new_journal_at_once(path: Path) -> None:
    barrier = threading.Barrier(16)
    failed: list[BaseException] = []

    def open_it(number: int) -> None:
        try:
            barrier.wait()
            with RunJournal(path) as journal:
                journal.append(iteration("r", number))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=open_it, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with RunJournal(path) as journal:
        assert [event.seq for event in journal.events("r")] == list(range(16))


@pytest.fixture(params=["events", "replay_index"])
def reader(request: pytest.FixtureRequest, journal: RunJournal) -> Callable[[str], Any]:
    read: Callable[[str], Any] = getattr(journal, request.param)
    return read


def test_readers_and_writers_of_one_handle_do_not_disturb_each_other(
    journal: RunJournal, reader: Callable[[str], Any]
) -> None:
    journal.append_many([iteration("read", n) for n in range(2000)])
    lengths: set[int] = set()

    def read() -> None:
        for _ in range(20):
            lengths.add(len(reader("read")))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(500):
        journal.append(iteration("written", n))
    for thread in threads:
        thread.join()
    assert lengths == {2000}
    assert len(journal.events("written")) == 500


@pytest.mark.skipif(os.name != "posix", reason="an open file keeps its name")
@pytest.mark.parametrize("became", ["removed", "replaced by a backup", "removed and made again"])
def test_nothing_is_written_to_a_file_that_has_lost_its_name(path: Path, became: str) -> None:
    with RunJournal(path) as journal, RunJournal(path) as driving:
        run = DurableRun(driving, "driven")
        run.iteration(0)
        journal.backup(path.with_name("backup.db"))
        if became == "replaced by a backup":
            path.with_name("backup.db").replace(path)
        else:
            shutil.rmtree(path.parent)
        if became == "removed and made again":
            RunJournal(path).close()
        time.sleep(0.15)  # it is not looked at more often
        for write in (
            lambda: journal.append(iteration("r", 0)),
            lambda: journal.append_many([iteration("r", 0)]),
            lambda: journal.open_run("r"),
            lambda: DurableRun(journal, "r").iteration(0),
            lambda: run.iteration(1),
        ):
            with pytest.raises(JournalStoreError, match="removed or replaced while it was open"):
                write()
        assert journal.events("r") == []
    with RunJournal(path) as journal:
        journal.append(iteration("r", 0))
        assert journal.run_meta("r") is None
        assert bool(journal.run_meta("driven")) is (became == "replaced by a backup")
