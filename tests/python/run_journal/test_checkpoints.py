"""Snapshots of the workspace, and that a resumed run finds it as its record has it."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.forms import Form, Killed, drive

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalNotFoundError,
    JournalStoreError,
    UncertainEffectError,
)
from turn_journal_runtime.run_journal import DurableRun, GitCheckpoints, RunJournal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURN_JOURNAL_HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    for name in ("src/deep", "empty/inner", ".git/refs", "build"):
        (folder / name).mkdir(parents=True)
    texts = {
        "a.txt": "a",
        "src/deep/b.py": "b",
        "src/ü €.txt": "name",
        ".gitignore": "*.log\n/build/\n.env\n!keep.log\n",
        "src/.gitignore": "*.tmp\n",
        ".env": "secret",
        "build/out": "built",
        "keep.log": "kept by an exception to the rule",
        "src/x.tmp": "ignored",
        ".git/HEAD": "ref: refs/heads/main",
        "big": "x" * 300_000,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("a.txt")
    (folder / "broken").symlink_to("nowhere")
    (folder / os.fsdecode(b"not utf8 \xff")).write_bytes(b"\xff\x00")
    return folder


def state(folder: Path) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", None)
        else:
            found[name] = ("program" if path.stat().st_mode & stat.S_IXUSR else "file", path.read_bytes())
    return found


#: What a crashed run may have left, in the words of a shell.
CHANGES = [
    "echo changed > a.txt",
    "rm a.txt",
    "rm -r src/deep src/.gitignore",
    "mkdir -p new/sub; echo new > new/sub/f",
    "chmod -x run.sh",
    "chmod +x a.txt",
    "ln -sf elsewhere link",
    "rm link; mkdir link; echo f > link/f",
    "rm -r src/deep; echo 'a file now' > src/deep",
    "rm src/deep/b.py; mkdir src/deep/b.py",
    "rm -r empty",
    "echo full > empty/inner/f",
    "rm .gitignore",
    "echo '*' > .gitignore",
    "echo '!*.tmp' > src/.gitignore",
    "mv src/deep moved",
    "mkdir cache; echo '*' > cache/.gitignore; echo 'hides itself' > cache/f",
    "mkdir -p clone/.git; echo x > clone/.git/HEAD",
    "rm a.txt; ln -s /etc/passwd a.txt",
    "rm keep.log",
]


def change_it(workspace: Path, change: str) -> None:
    subprocess.run(["sh", "-ec", change], cwd=workspace, check=True)


@pytest.mark.parametrize("change", CHANGES)
def test_restoring_brings_back_what_was(workspace: Path, change: str) -> None:
    before = state(workspace)
    checkpoint = GitCheckpoints(workspace).snapshot()
    change_it(workspace, change)
    assert state(workspace) != before
    GitCheckpoints(workspace).restore(checkpoint)
    assert state(workspace) == before
    GitCheckpoints(workspace).restore(checkpoint)
    assert state(workspace) == before


def test_restoring_keeps_what_is_ignored_and_the_workspaces_own_git(workspace: Path) -> None:
    checkpoints = GitCheckpoints(workspace)
    checkpoint = checkpoints.snapshot()
    kept = {".env": "rotated", "build/out": "built again", "build/new": "x", "new.log": "log", "src/y.tmp": "y"}
    kept |= {".git/HEAD": "moved on", ".git/new": "x", "made/by/run.log": "in a new folder"}
    (workspace / "made/by").mkdir(parents=True)
    (workspace / "made/by/file").write_text("left by the crash")
    for name, text in kept.items():
        (workspace / name).write_text(text)
    checkpoints.restore(checkpoint)
    assert {name: (workspace / name).read_text() for name in kept} == kept
    assert not (workspace / "made/by/file").exists()


def test_a_crashed_runs_rules_do_not_decide_what_is_ignored(workspace: Path) -> None:
    """A run that empties .gitignore must not cost the user the files that it protected, nor may one keep its mess."""
    checkpoints = GitCheckpoints(workspace)
    checkpoint = checkpoints.snapshot()
    (workspace / ".gitignore").write_text("mess\n")
    (workspace / "mess").write_text("left")
    checkpoints.restore(checkpoint)
    assert (workspace / ".env").read_text() == "secret"
    assert not (workspace / "mess").exists()


def test_an_unchanged_workspace_has_one_snapshot(workspace: Path) -> None:
    checkpoints = GitCheckpoints(workspace)
    first = checkpoints.snapshot()
    assert checkpoints.snapshot() == first == GitCheckpoints(workspace).snapshot()
    (workspace / "a.txt").write_text("b")
    assert checkpoints.snapshot() != first


def test_a_change_within_one_tick_of_the_clock_is_seen(workspace: Path) -> None:
    checkpoints = GitCheckpoints(workspace)
    file = workspace / "a.txt"
    ids = set()
    for number in range(50):
        file.write_text(f"{number:04}")
        ids.add(checkpoints.snapshot())
    assert len(ids) == 50


@pytest.mark.skipif(shutil.which("git") is None, reason="asks git for its opinion")
def test_the_store_is_a_sound_repository(workspace: Path) -> None:
    checkpoints = GitCheckpoints(workspace)
    checkpoints.snapshot()
    (workspace / "a.txt").write_text("b")
    checkpoint = checkpoints.snapshot()
    git = ["git", "--git-dir", str(checkpoints.store)]
    assert subprocess.run([*git, "fsck", "--strict"], capture_output=True, check=False).returncode == 0
    shown = subprocess.run([*git, "show", f"{checkpoint}:a.txt"], capture_output=True, check=True)
    assert shown.stdout == b"b"


def test_the_store_is_outside_of_the_workspace_and_of_its_own(workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert GitCheckpoints(workspace).store != GitCheckpoints(other).store
    assert GitCheckpoints(workspace).store.parent == tmp_path / "home" / "checkpoints"
    with pytest.raises(InvalidJournalError, match="outside"):
        GitCheckpoints(workspace, store=workspace / ".checkpoints")
    with pytest.raises(InvalidJournalError, match="no folder"):
        GitCheckpoints(tmp_path / "nowhere")


@pytest.mark.parametrize("checkpoint", ["", "nonsense", "0" * 40, "ü"])
def test_an_unknown_snapshot_changes_nothing(workspace: Path, checkpoint: str) -> None:
    checkpoints = GitCheckpoints(workspace)
    checkpoints.snapshot()
    (workspace / "a.txt").write_text("changed")
    before = state(workspace)
    with pytest.raises(JournalNotFoundError):
        checkpoints.restore(checkpoint)
    assert state(workspace) == before


def test_a_place_that_cannot_be_brought_back_is_named(workspace: Path) -> None:
    """A folder became what was a file, and what is ignored stands in it: neither is thrown away in silence."""
    checkpoints = GitCheckpoints(workspace)
    checkpoint = checkpoints.snapshot()
    (workspace / "a.txt").unlink()
    (workspace / "a.txt").mkdir()
    (workspace / "a.txt" / "mine.log").write_text("ignored")
    with pytest.raises(JournalStoreError, match=r"a\.txt"):
        checkpoints.restore(checkpoint)
    assert (workspace / "a.txt" / "mine.log").read_text() == "ignored"
    (workspace / "a.txt" / "mine.log").unlink()
    checkpoints.restore(checkpoint)
    assert (workspace / "a.txt").read_text() == "a"


def test_without_the_extra_the_remedy_is_named(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dulwich.repo", None)
    with pytest.raises(JournalStoreError, match=r"pip install 'turn-journal-runtime\[git\]'"):
        GitCheckpoints(workspace)


def test_random_changes_are_undone(workspace: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed: {seed}")
    dice = random.Random(seed)
    checkpoints = GitCheckpoints(workspace)
    snapshots = [(checkpoints.snapshot(), state(workspace))]
    names = ["a", "b", "c/d", "c/e", "f/g/h", "f/g", "f", "c"]
    for _ in range(60):
        path = workspace / "random" / dice.choice(names)
        action = dice.randrange(4)
        if action == 0 and not path.is_dir() and not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(dice.random()))
        elif action == 1 and path.is_dir():
            shutil.rmtree(path)
        elif action == 2 and path.is_file():
            path.unlink()
        elif action == 3:
            snapshots.append((checkpoints.snapshot(), state(workspace)))
    dice.shuffle(snapshots)
    for checkpoint, expected in snapshots:
        checkpoints.restore(checkpoint)
        assert state(workspace) == expected


# With a run


def test_a_resumed_run_finds_the_workspace_as_its_record_has_it(
    form: Form, journal: RunJournal, workspace: Path
) -> None:
    def write(name: str, dies: bool = False) -> None:
        (workspace / name).write_text(name)
        if dies:
            (workspace / "half").write_text("done")
            raise Killed

    async def loop(run: Any, dies: bool) -> None:
        await run.tool("write", {"name": "one"}, write)
        await run.iteration(1)
        await run.tool("write", {"name": "two"}, partial(write, dies=dies), restart_safe=True)

    before = state(workspace)
    with pytest.raises(Killed):
        drive(form, journal, "r", lambda run: loop(run, True), checkpoints=GitCheckpoints(workspace))
    (workspace / "a.txt").write_text("spoiled by something else")
    seen: list[dict[str, Any]] = []

    async def looking(run: Any) -> None:
        seen.append(state(workspace))
        await loop(run, False)

    drive(form, journal, "r", looking, checkpoints=GitCheckpoints(workspace))
    assert seen == [before | {"one": ("file", b"one")}], "the first tool's work, and nothing of the second's"
    assert state(workspace) == before | {"one": ("file", b"one"), "two": ("file", b"two")}
    run = journal.run_meta("r")
    assert run is not None
    results = [event.payload for event in journal.events("r") if event.kind == "tool_result"]
    assert run.checkpoint_id == results[-1]["checkpoint_id"]


def test_a_run_that_ends_before_its_first_result_starts_from_its_own_beginning(
    form: Form, journal: RunJournal, workspace: Path
) -> None:
    before = state(workspace)

    def tool() -> None:
        (workspace / "mess").write_text("x")
        raise Killed

    for expected in (Killed, UncertainEffectError):
        with pytest.raises(expected):
            drive(form, journal, "r", lambda run: run.tool("t", {}, tool), checkpoints=GitCheckpoints(workspace))
    assert state(workspace) == before


def test_a_fork_starts_from_its_own_steps_workspace(journal: RunJournal, workspace: Path) -> None:
    def loop(run: DurableRun, steps: int) -> None:
        for number in range(steps):
            run.tool("write", {"n": number}, lambda n: (workspace / f"step {n}").write_text("x"))

    checkpoints = GitCheckpoints(workspace)
    with DurableRun(journal, "r", checkpoints=checkpoints) as run:
        loop(run, 4)
    journal.fork("r", "s", upto=1)
    with DurableRun(journal, "s", checkpoints=checkpoints) as run:
        run.start()
        assert sorted(path.name for path in workspace.glob("step *")) == ["step 0", "step 1"]
        loop(run, 3)
    assert sorted(path.name for path in workspace.glob("step *")) == ["step 0", "step 1", "step 2"]


def test_a_replay_of_an_ended_run_leaves_the_workspace_alone(journal: RunJournal, workspace: Path) -> None:
    for _ in range(2):
        with DurableRun(journal, "r", checkpoints=GitCheckpoints(workspace)) as run:
            run.tool("t", {}, lambda: (workspace / "a.txt").write_text("by the run"))
        (workspace / "a.txt").write_text("by the user, later")
        before = state(workspace)
    with DurableRun(journal, "r", checkpoints=GitCheckpoints(workspace)) as run:
        run.tool("t", {}, lambda: 1)
    assert state(workspace) == before


KILLED_WHILE_RESTORING = """
    import os, signal, sys
    from turn_journal_runtime.run_journal import *
    checkpoints = GitCheckpoints(sys.argv[1])
    left = int(sys.argv[3])
    def dying(real):
        def call(*arguments, **keywords):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **keywords)
        return call
    for name in ("replace", "unlink", "rmdir", "mkdir", "symlink", "lstat"):
        setattr(os, name, dying(getattr(os, name)))
    checkpoints.restore(sys.argv[2])
"""


@pytest.mark.process
def test_a_restore_that_is_killed_is_finished_by_the_next(workspace: Path) -> None:
    before = state(workspace)
    checkpoints = GitCheckpoints(workspace)
    checkpoint = checkpoints.snapshot()
    for left in (1, 3, 6, 9, 12, 15, 20, 25):
        for change in (CHANGES[0], CHANGES[2], CHANGES[3], CHANGES[7], CHANGES[11], CHANGES[12]):
            change_it(workspace, change)
        command = [sys.executable, "-c", textwrap.dedent(KILLED_WHILE_RESTORING), str(workspace), checkpoint, str(left)]
        subprocess.run(command, check=False, timeout=240)
        checkpoints.restore(checkpoint)
        assert state(workspace) == before
