"""Conversations: messages one at a time and in order, sessions side by side, and what a death leaves behind."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.chat.chat_hosts import NotingHost, notes_of

from turn_journal_runtime import give_up_turn, list_turn_journals, prune_turn_journals
from turn_journal_runtime.chat import ChatRuntime, ChatSession, SessionNotFoundError, SessionStore
from turn_journal_runtime.errors import TurnBusyError, TurnSuspended
from turn_journal_runtime.hosts import CallableHost
from turn_journal_runtime.turns import HostFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Eventually

    from turn_journal_runtime.turns import HostAdapter


class Chat:
    """A store, the hosts that were made, and a runtime over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SessionStore(folder / "chat.db")
        self.made: list[NotingHost] = []
        self.runtimes: list[ChatRuntime] = []

    def make(self, session: ChatSession) -> NotingHost:
        self.made.append(NotingHost(session, self.folder))
        return self.made[-1]

    def runtime(self, factory: Any = None) -> ChatRuntime:
        self.runtimes.append(ChatRuntime(self.store, factory or self.make))
        return self.runtimes[-1]


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    made = Chat(tmp_path)
    yield made
    for runtime in made.runtimes:
        runtime.close(at_once=True)
    made.store.close()


PLACE: dict[str, Any] = {"work_dir": "/work", "objective": "talk"}


def test_messages_are_answered_in_order_and_in_one_session_of_the_host(chat: Chat) -> None:
    runtime = chat.runtime()
    session = runtime.open_session(**PLACE)
    submitted = [runtime.submit_turn(session.session_id, f"m{number}", f"id-{number}") for number in range(5)]
    answers = [turn.wait(60) for turn in submitted]
    assert [(turn.seq, turn.status) for turn in answers] == [(number, "answered") for number in range(1, 6)]
    assert [turn.result["answer"] for turn in answers if turn.result] == [f"answer to m{number}" for number in range(5)]
    notes = notes_of(chat.folder, f"session-of-{session.session_id}")
    assert [(note["what"], note["message"]) for note in notes] == [
        (what, f"m{number}") for number in range(5) for what in ("execute", "answer")
    ]
    assert len(chat.made) == 1


def test_a_message_is_asked_once_however_often_it_is_submitted(chat: Chat) -> None:
    runtime = chat.runtime()
    session = runtime.open_session(session_id="s", **PLACE)
    first = runtime.submit_turn("s", "hello", "id").wait(60)
    assert runtime.submit_turn("s", "hello", "id").wait(60) == first
    assert runtime.turn("s", "id") == first
    assert len(notes_of(chat.folder, f"session-of-{session.session_id}")) == 2


def test_an_answer_that_was_pruned_before_it_was_noted_is_told(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise ConnectionError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(SessionStore, "end", die)
        runtime = chat.runtime()
        runtime.open_session(session_id="s", **PLACE)
        with pytest.raises(ConnectionError):
            runtime.submit_turn("s", "hello", "id").wait(60)
        runtime.close()
    assert len(prune_turn_journals(chat.folder, older_than=0)) == 1
    again = chat.runtime()
    again.resume_session(session_id="s", **PLACE)
    turn = again.submit_turn("s", "hello", "id").wait(60)
    assert (turn.status, turn.result, turn.reason) == ("failed", None, "answer_pruned")
    assert len(notes_of(chat.folder, "session-of-s")) == 2, "and the host was not asked again"


def test_an_answer_can_be_awaited(chat: Chat) -> None:
    runtime = chat.runtime()
    runtime.open_session(session_id="s", **PLACE)

    async def talk() -> list[str]:
        turns = await asyncio.gather(*(runtime.submit_turn("s", f"m{n}", f"id-{n}") for n in range(3)))
        return [turn.status for turn in turns]

    assert asyncio.run(talk()) == ["answered"] * 3


def test_who_gives_up_waiting_takes_no_message_along(chat: Chat) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def loop(context: Any) -> dict[str, Any]:
        begun.set()
        assert go_on.wait(60)
        return {"result_kind": "validated_progress"}

    runtime = chat.runtime(lambda session: CallableHost(loop))
    runtime.open_session(session_id="s", **PLACE)
    submitted = runtime.submit_turn("s", "hello", "id")

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(submitted, 0.05)

    assert begun.wait(60)
    asyncio.run(give_up())
    go_on.set()
    assert submitted.wait(60).status == "answered"


def test_sessions_go_on_side_by_side(chat: Chat) -> None:
    both = threading.Barrier(2)

    def loop(context: Any) -> dict[str, Any]:
        both.wait(60)
        return {"result_kind": "validated_progress"}

    runtime = chat.runtime(lambda session: CallableHost(loop))
    for name in ("a", "b"):
        runtime.open_session(session_id=name, **PLACE)
    turns = [runtime.submit_turn(name, "hello", "id") for name in ("a", "b")]
    assert [turn.wait(60).status for turn in turns] == ["answered", "answered"]


def test_an_unknown_or_closed_session_is_a_key_error(chat: Chat) -> None:
    runtime = chat.runtime()
    with pytest.raises(KeyError):
        runtime.resume_session(session_id="nobody", **PLACE)
    with pytest.raises(SessionNotFoundError):
        runtime.submit_turn("nobody", "hello", "id")
    runtime.open_session(session_id="s", **PLACE)
    runtime.close_session("s")
    with pytest.raises(KeyError):
        runtime.resume_session(session_id="s", **PLACE)
    assert chat.made == []


def test_queued_messages_are_drained_when_a_session_is_resumed(chat: Chat) -> None:
    chat.store.open_session("s", **PLACE)
    for number in range(3):
        chat.store.accept("s", f"m{number}", f"id-{number}")
    runtime = chat.runtime()
    resumed = runtime.resume_session(session_id="s", work_dir="/elsewhere", objective="other")
    assert (resumed.work_dir, resumed.objective) == ("/elsewhere", "other")
    assert runtime.submit_turn("s", "m3", "id-3").wait(60).seq == 4
    assert [turn.status for turn in chat.store.turns("s")] == ["answered"] * 4


def test_a_host_that_is_not_well_is_made_again(chat: Chat) -> None:
    runtime = chat.runtime()
    runtime.open_session(session_id="s", **PLACE)
    runtime.submit_turn("s", "m0", "id-0").wait(60)
    runtime.resume_session(session_id="s", **PLACE)
    runtime.submit_turn("s", "m1", "id-1").wait(60)
    assert len(chat.made) == 1
    chat.made[0].well = False
    runtime.resume_session(session_id="s", **PLACE)
    runtime.submit_turn("s", "m2", "id-2").wait(60)
    assert (len(chat.made), chat.made[0].closed) == (2, 1)


def test_one_process_drives_a_session_and_the_other_is_told(chat: Chat) -> None:
    first, second = chat.runtime(), chat.runtime()
    first.open_session(session_id="s", **PLACE)
    with pytest.raises(TurnBusyError):
        second.resume_session(session_id="s", **PLACE)
    with pytest.raises(TurnBusyError):
        second.submit_turn("s", "hello", "id")
    first.close()
    second.resume_session(session_id="s", **PLACE)
    assert second.submit_turn("s", "hello", "id").wait(60).status == "answered"


def test_an_interrupted_message_is_recovered_in_its_session_and_not_asked_again(chat: Chat) -> None:
    begun = threading.Event()

    class DyingHost(NotingHost):
        def _work(self, host_session: str, request: Any, what: str) -> dict[str, Any]:
            super()._work(host_session, request, what)
            begun.set()
            raise SystemExit  # the process ends after the agent has answered, before anybody heard of it

    runtime = chat.runtime(lambda session: DyingHost(session, chat.folder))
    runtime.open_session(session_id="s", **PLACE)
    lost = runtime.submit_turn("s", "m0", "id-0")
    with pytest.raises(SystemExit):
        lost.wait(60)
    assert begun.is_set()
    runtime.close(at_once=True)
    again = chat.runtime()
    again.resume_session(session_id="s", **PLACE)
    answered = again.submit_turn("s", "m0", "id-0").wait(60)
    assert (answered.status, answered.result) == (
        "answered",
        {"result_kind": "validated_progress", "answer": "answer to m0"},
    )
    assert [note["what"] for note in notes_of(chat.folder, "session-of-s")] == ["execute", "answer"]


class FailingHost(NotingHost):
    """Fails each message in its own way, named by the message."""

    def _work(self, host_session: str, request: Any, what: str) -> dict[str, Any]:
        kind = request.input["message"]
        if kind != "fine":
            raise HostFailedError(kind=kind)
        return super()._work(host_session, request, what)


def test_a_failed_message_holds_up_no_other(chat: Chat) -> None:
    runtime = chat.runtime(lambda session: FailingHost(session, chat.folder))
    runtime.open_session(session_id="s", **PLACE)
    failed = runtime.submit_turn("s", "quota_exhausted", "id-0").wait(60)
    assert (failed.status, failed.reason, failed.result) == ("failed", "quota_exhausted", None)
    assert runtime.submit_turn("s", "session_missing", "id-1").wait(60).reason == "session_missing"
    assert runtime.submit_turn("s", "fine", "id-2").wait(60).status == "answered"


def test_after_a_session_that_is_gone_the_next_message_starts_another(chat: Chat) -> None:
    asked: list[Any] = []

    class Forgetful(FailingHost):
        def execute(self, request: Any) -> dict[str, Any]:
            asked.append(request.session["action"])
            return super().execute(request)

    runtime = chat.runtime(lambda session: Forgetful(session, chat.folder))
    runtime.open_session(session_id="s", **PLACE)
    for message in ("fine", "session_missing", "fine", "fine"):
        runtime.submit_turn("s", message, f"id-{len(asked)}").wait(60)
    assert asked == ["start_new", "resume", "start_new", "resume"]


def test_a_failed_message_is_not_tried_again_before_its_time(chat: Chat, eventually: Eventually) -> None:
    tried: list[str] = []

    class Limited(NotingHost):
        def _work(self, host_session: str, request: Any, what: str) -> dict[str, Any]:
            tried.append(what)
            raise HostFailedError(kind="rate_limited")

    runtime = chat.runtime(lambda session: Limited(session, chat.folder))
    runtime.open_session(session_id="s", **PLACE)
    runtime.submit_turn("s", "hello", "id")
    eventually(lambda: [turn["status"] for turn in list_turn_journals(chat.folder)] == ["failed"])
    time.sleep(0.5)
    assert tried == ["execute"]


def test_a_message_that_waits_for_its_back_off_is_not_lost_when_the_runtime_ends(
    chat: Chat, eventually: Eventually
) -> None:
    runtime = chat.runtime(lambda session: FailingHost(session, chat.folder))
    runtime.open_session(session_id="s", **PLACE)
    waits = runtime.submit_turn("s", "rate_limited", "id-0")
    runtime.submit_turn("s", "fine", "id-1")
    eventually(lambda: chat.store.turn("s", "id-0").status == "running")
    runtime.close(at_once=True)
    assert [turn.status for turn in chat.store.turns("s")] == ["running", "queued"]
    with pytest.raises(RuntimeError, match="resume_session"):
        waits.wait(60)


def test_a_message_that_is_given_up_in_its_back_off_holds_up_no_other(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = chat.runtime(lambda session: FailingHost(session, chat.folder))
    runtime.open_session(session_id="s", **PLACE)
    backing_off, go_on = threading.Event(), threading.Event()
    conversation = runtime._conversations["s"]

    def wait(seconds: float) -> bool:
        backing_off.set()
        return not go_on.wait(60)

    monkeypatch.setattr(conversation._stopping, "wait", wait)
    waits = runtime.submit_turn("s", "rate_limited", "id-0")
    assert backing_off.wait(60)
    (failed,) = list_turn_journals(chat.folder)
    names: dict[str, Any] = {"goal_id": "chat", "agent_id": "s", "turn_key": failed["turn_key"]}
    assert give_up_turn(chat.folder, **names, reason="Never mind.", by="anna").changed
    go_on.set()
    ended = waits.wait(60)
    assert (ended.status, ended.reason) == ("failed", "given_up")
    assert len(notes_of(chat.folder, "session-of-s")) == 0
    assert runtime.submit_turn("s", "fine", "id-1").wait(60).status == "answered"


def test_closing_a_session_cancels_what_waits_and_ends_what_runs(chat: Chat) -> None:
    begun, end = threading.Event(), threading.Event()

    class SlowHost(NotingHost):
        def _work(self, host_session: str, request: Any, what: str) -> dict[str, Any]:
            begun.set()
            end.wait(60)
            raise HostFailedError(kind="transport_lost", resumable=True)

        def close(self) -> None:
            end.set()

    runtime = chat.runtime(lambda session: SlowHost(session, chat.folder))
    runtime.open_session(session_id="s", **PLACE)
    turns = [runtime.submit_turn("s", f"m{n}", f"id-{n}") for n in range(2)]
    assert begun.wait(60)
    runtime.close_session("s")
    assert [turn.wait(60).status for turn in turns] == ["cancelled", "cancelled"]


def test_a_question_stops_the_conversation_until_it_is_answered(chat: Chat) -> None:
    from turn_journal_runtime.run_journal import RunJournal
    from turn_journal_runtime.turns.folder_root import run_journal_path

    def loop(context: Any) -> dict[str, Any]:
        return {"result_kind": "validated_progress", "said": context.approval("may I?")}

    runtime = chat.runtime(lambda session: CallableHost(loop))
    runtime.open_session(session_id="s", **PLACE)
    asked = runtime.submit_turn("s", "m0", "id-0")
    with pytest.raises(TurnSuspended) as raised:
        asked.wait(60)
    with RunJournal(run_journal_path(chat.folder)) as runs:
        runs.approve(raised.value.details["run_id"], raised.value.details["seq"], "yes", by="me")
    runtime.resume_session(session_id="s", **PLACE)
    answered = runtime.submit_turn("s", "m0", "id-0").wait(60)
    assert answered.result == {"result_kind": "validated_progress", "said": "yes"}


def test_a_message_that_is_accepted_as_the_runtime_ends_is_not_waited_for(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = chat.runtime()
    session = runtime.open_session(**PLACE)
    accept = chat.store.accept

    def accept_as_it_ends(*message: Any) -> Any:
        runtime.close()
        return accept(*message)

    monkeypatch.setattr(chat.store, "accept", accept_as_it_ends)
    submitted = runtime.submit_turn(session.session_id, "hello", "m-1")
    with pytest.raises(RuntimeError, match="let go of"):
        submitted.wait(60)
    monkeypatch.undo()
    chat.runtime().resume_session(session_id=session.session_id, **PLACE)
    assert chat.runtimes[-1].submit_turn(session.session_id, "hello", "m-1").wait(60).status == "answered"


def test_a_factory_that_fails_loses_no_message(chat: Chat) -> None:
    broken = [True]

    def factory(session: ChatSession) -> HostAdapter:
        if broken:
            raise OSError("no such program")
        return chat.make(session)

    runtime = chat.runtime(factory)
    runtime.open_session(session_id="s", **PLACE)
    with pytest.raises(OSError, match="no such program"):
        runtime.submit_turn("s", "m0", "id-0").wait(60)
    broken.clear()
    assert runtime.submit_turn("s", "m0", "id-0").wait(60).status == "answered"
