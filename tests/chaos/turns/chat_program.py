"""A chat that takes up its sessions, submits what is left of its messages, and waits for all; to be killed anywhere."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from tests.python.chat.chat_hosts import NotingHost

from turn_journal_runtime.chat import ChatRuntime, SessionStore

SESSIONS, MESSAGES = 20, 10


def main() -> None:
    root, seed = Path(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(seed)
    accepted = os.open(root / "accepted.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    store = SessionStore(root / "chat.db")
    runtime = ChatRuntime(store, lambda session: NotingHost(session, root, lambda: chance.uniform(0, 0.02)))
    names = [f"s{number}" for number in range(SESSIONS)]
    for name in names:
        runtime.open_session(session_id=name, work_dir=str(root), objective="talk")
    turns = []
    for number in range(MESSAGES):
        for name in names:
            turns.append(runtime.submit_turn(name, f"m{number}", f"id-{number}"))
            os.write(accepted, f"{name} {number}\n".encode())
    for turn in turns:
        assert turn.wait(120).status == "answered"
    runtime.close()
    store.close()


if __name__ == "__main__":
    main()
