"""A write whose core is killed after it was put in place is tried again by the façade: it stands once, also when
another writer followed it in between.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.chaos.store.core import Core, journal, path_of

from turn_journal_runtime import write_turn_journal
from turn_journal_runtime.bridge import RuntimeClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Eventually

pytestmark = pytest.mark.chaos

UNSET: dict[str, Any] = {}


@pytest.mark.parametrize("follows", [UNSET, {"expected_previous": None}], ids=["whatever stood", "nothing stood"])
def test_a_write_that_was_followed_stands_once(
    node: str,
    bundle: Path,
    core: Core,
    root: Path,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    follows: dict[str, Any],
) -> None:
    path = path_of(root)
    held = tmp_path / "held"
    starter = tmp_path / "node"
    starter.write_text(f'#!/bin/sh\nwhile [ -e "{held}" ]; do sleep 0.01; done\nexec "{node}" "$@"\n')
    starter.chmod(0o755)
    monkeypatch.setenv("TURN_JOURNAL_FAULT", "folder.sync:after:stop")
    answers: list[Any] = []
    with RuntimeClient(core=str(bundle), node=str(starter)) as client:
        client.call("runtime.info", {})
        pid = client.pid
        assert pid is not None

        def write() -> None:
            answers.append(write_turn_journal(path, journal(0), client=client, **follows))

        caller = threading.Thread(target=write)
        caller.start()
        eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        held.touch()
        psutil.Process(pid).kill()
        eventually(lambda: not psutil.pid_exists(pid))
        assert core.call("write", path=str(path), journal=journal(1))["appended"]
        held.unlink()
        caller.join(60)
    assert [(answer["appended"], answer["replayed"]) for answer in answers] == [(False, True)]
    rows = core.call("history", path=str(path))["transitions"]
    assert [row["completed_phases"] for row in rows] == [[], ["a"]]
