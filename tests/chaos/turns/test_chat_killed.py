"""A chat is killed at random while many sessions have many messages: each is answered once, in order, none twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.chaos.turns.chat_program import MESSAGES, SESSIONS
from tests.python.chat.chat_hosts import notes_of

from turn_journal_runtime.bridge import default_client
from turn_journal_runtime.chat import SessionStore

pytestmark = pytest.mark.chaos

SOAK = os.environ.get("TURN_JOURNAL_SOAK") == "1"
SEED = int(os.environ.get("TURN_JOURNAL_SEED", random.SystemRandom().randrange(2**32)))
KILLS = 200 if SOAK else 4
REPOSITORY = Path(__file__).parents[3]


@pytest.mark.timeout(3600)
def test_every_accepted_message_is_answered_once_and_in_order(tmp_path: Path) -> None:
    print(f"\nTURN_JOURNAL_SEED={SEED}")
    chance = random.Random(SEED)
    kills = chats = interrupted = 0
    # A chat that has come to its end cannot be killed any more: then another one begins.
    while kills < KILLS:
        root = tmp_path / f"chat-{chats}"
        root.mkdir()
        chats += 1
        # Every second one at the earliest where hosts work: a slow machine takes a while to get there.
        while not run_chat(root, chance, kill=kills < KILLS, works=kills % 2 == 1):
            kills += 1
        interrupted += look_at(root)
    print(f"{kills} kills of {chats} chats; {interrupted} messages were interrupted and recovered")
    assert interrupted > 0


def run_chat(root: Path, chance: random.Random, *, kill: bool, works: bool) -> bool:
    """Runs the chat, and kills it at some instant of its work; whether it came to its end."""

    def written() -> int:
        return sum(file.stat().st_size for file in root.glob("*.jsonl" if works else "accepted.txt"))

    before = written()
    command = [sys.executable, "-m", "tests.chaos.turns.chat_program", str(root), str(chance.getrandbits(32))]
    chat = subprocess.Popen(command, cwd=REPOSITORY)
    if kill:
        while chat.poll() is None and written() == before:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.5 if works else 1.5))
        chat.kill()
    status = chat.wait()
    assert status in (0, -9)
    return status == 0


def look_at(root: Path) -> int:
    """What was accepted and answered; the number of messages that were interrupted."""
    accepted = set((root / "accepted.txt").read_text().splitlines())
    assert len(accepted) == SESSIONS * MESSAGES
    store = SessionStore(root / "chat.db")
    for number in range(SESSIONS):
        turns = store.turns(f"s{number}")
        assert [(turn.seq, turn.message, turn.status) for turn in turns] == [
            (at + 1, f"m{at}", "answered") for at in range(MESSAGES)
        ]
        assert [(turn.result or {})["answer"] for turn in turns] == [f"answer to m{at}" for at in range(MESSAGES)]
        ends = [turn.ended_at or 0.0 for turn in turns]
        assert ends == sorted(ends)
        notes = notes_of(root, f"session-of-s{number}")
        assert [note["message"] for note in notes if note["what"] == "answer"] == [f"m{at}" for at in range(MESSAGES)]
        begun = Counter(note["turn"] for note in notes if note["what"] == "execute")
        assert max(begun.values()) == 1, "a message was asked twice"
    store.close()
    verified = default_client().call("turn_journal.verify", {"runtime_root": str(root), "limit": 1000})
    assert verified["ok"], verified
    assert len(verified["turns"]) == SESSIONS * MESSAGES
    journals = [json.loads(path.read_bytes()) for path in (root / "goals" / "chat" / "turns").glob("*.json")]
    return sum("recovery_audit" in journal for journal in journals)
