"""Conversations that outlive their process: each message is one durable turn. session-recovery.md, section 6."""

from __future__ import annotations

import os
import threading
import time
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from ..address import is_database
from ..bridge import default_client
from ..flow import answered, run
from ..turns.giving_up import given_up_by
from ..turns.lease import TurnLease, acquire_lease
from ..turns.outcome import TurnRecoveryBlockedError
from ..turns.plan import plan_turn
from ..turns.root import open_root
from ..turns.sessions import TurnSessions
from ..turns.turn import run_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from ..bridge import RuntimeClient
    from ..turns.host import HostAdapter
    from ..turns.outcome import TurnResult
    from .store import ChatSession, ChatTurn, SessionStore

_GOAL: Final = "chat"
#: All turns of a conversation go on in one session of the host.
_POLICY: Final = {"binding_scope": "agent"}


class _Identity(TypedDict):
    goal_id: str
    agent_id: str
    todo_id: str


class SubmittedTurn:
    """A message that was accepted: durable from here on. Wait for its end with `wait`, or `await` it."""

    def __init__(self, accepted: ChatTurn, future: Future[ChatTurn]) -> None:
        self.accepted: Final = accepted
        self._future = future

    def wait(self, timeout: float | None = None) -> ChatTurn:
        """What became of it; raises what stopped the conversation, or `TimeoutError` after so many seconds."""
        return self._future.result(timeout)

    def __await__(self) -> Generator[Any, None, ChatTurn]:
        import asyncio

        return asyncio.wrap_future(self._future).__await__()


class ChatRuntime:
    """Drives conversations: the messages of one session one at a time and in order, sessions side by side.

    Args:
        store: What was accepted and answered.
        adapter_factory: Makes the host of a session; called again when the host is missing or unhealthy.
        runtime_root: The folder of the turns, or `postgresql://…`; the store's own folder when None.
        client: The runtime to ask; the default one when None.

    The process may be killed at any point: `resume_session` goes on, and the message that was being answered is
    recovered, not asked again. A context manager.

    Specified in session-recovery.md, section 6.
    """

    def __init__(
        self,
        store: SessionStore,
        adapter_factory: Callable[[ChatSession], HostAdapter],
        *,
        runtime_root: str | os.PathLike[str] | None = None,
        client: RuntimeClient | None = None,
    ) -> None:
        self._store = store
        self._adapter_factory = adapter_factory
        self._root = os.path.abspath(store.path.parent) if runtime_root is None else runtime_root
        self._client = client or default_client()
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._conversations: dict[str, _Conversation] = {}

    def open_session(self, *, work_dir: str, objective: str, session_id: str | None = None) -> ChatSession:
        """Opens a conversation.

        Args:
            work_dir: The folder that the host works in.
            objective: What the conversation is for.
            session_id: Its id; a new one when None. One that is open already is resumed.

        Raises:
            SessionNotFoundError: A session of that id was closed.
            TurnBusyError: Another process drives it.
        """
        named = session_id or uuid.uuid4().hex
        self._store.open_session(named, work_dir=work_dir, objective=objective)
        return self.resume_session(session_id=named, work_dir=work_dir, objective=objective)

    def resume_session(self, *, session_id: str, work_dir: str, objective: str) -> ChatSession:
        """Takes a conversation up: its host is made again where it is gone, and the messages that wait are answered.

        Args:
            session_id: The session.
            work_dir: The folder that the host works in; a host's session can be resumed in its own folder only.
            objective: What the conversation is for.

        Raises:
            SessionNotFoundError: The session is unknown or closed; also a `KeyError`.
            TurnBusyError: Another process drives it.
        """
        session = self._store.place_session(session_id, work_dir=work_dir, objective=objective)
        conversation = self._conversation(session)
        conversation.place(session)
        conversation.go_on()
        return session

    def submit_turn(self, session_id: str, message: str, client_turn_id: str) -> SubmittedTurn:
        """Accepts a message, once: the same client turn id again is the same turn.

        Raises:
            SessionNotFoundError: The session is unknown or closed.
            JournalConflictError: The client turn id stands for another message.
            TurnBusyError: Another process drives the session.
        """
        conversation = self._conversation(self._store.session(session_id))
        accepted = self._store.accept(session_id, message, client_turn_id)
        return SubmittedTurn(accepted, conversation.expect(accepted))

    def turn(self, session_id: str, client_turn_id: str) -> ChatTurn:
        """A message and what became of it; raises `SessionNotFoundError` when there is none."""
        return self._store.turn(session_id, client_turn_id)

    def close_session(self, session_id: str) -> None:
        """Ends a conversation: what its host does at the moment is ended, and messages that wait are cancelled.

        Raises:
            SessionNotFoundError: The session is unknown or closed.
            TurnBusyError: Another process drives it.
        """
        conversation = self._conversation(self._store.session(session_id))
        self._store.close_session(session_id)
        with self._lock:
            self._conversations.pop(session_id, None)
        conversation.close(at_once=True, cancel=True)

    def close(self, *, at_once: bool = False) -> None:
        """Lets go of every conversation; the messages that wait stay accepted.

        Args:
            at_once: End what the hosts do at the moment, to be recovered later, instead of waiting for it.
        """
        self._leave_to_parent()
        with self._lock:
            conversations = list(self._conversations.values())
            self._conversations.clear()
        for conversation in conversations:
            conversation.stop()
        for conversation in conversations:
            conversation.close(at_once=at_once)

    def __enter__(self) -> ChatRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _leave_to_parent(self) -> None:
        """In a forked child: the parent drives its conversations on. Nothing of them is ended here."""
        if self._process != os.getpid():
            _of_parents.append(self._conversations)
            self._begin()

    def _conversation(self, session: ChatSession) -> _Conversation:
        """The conversation that this process drives; one driver per session, by a lease as for turns."""
        self._leave_to_parent()
        with self._lock:
            known = self._conversations.get(session.session_id)
            if known is None:
                # A database's leases are for turns; the store is a file of this machine, and so is its lock.
                root = self._store.path.parent if is_database(self._root) else Path(os.path.abspath(self._root))
                place = root / "chat-sessions" / f"{uuid.uuid5(uuid.NAMESPACE_OID, session.session_id).hex}.json"
                lease = acquire_lease(root, place)
                known = _Conversation(self._store, self._root, self._client, self._adapter_factory, session, lease)
                self._conversations[session.session_id] = known
            return known


#: Conversations that a child got with its memory: their hosts and locks are the parent's.
_of_parents: Final[list[dict[str, _Conversation]]] = []


class _Conversation:
    """One session in this process: its host, the thread that works its queue, and who waits for what."""

    def __init__(
        self,
        store: SessionStore,
        root: str | os.PathLike[str],
        client: RuntimeClient,
        adapter_factory: Callable[[ChatSession], HostAdapter],
        session: ChatSession,
        lease: TurnLease,
    ) -> None:
        self._store = store
        self._root = root
        self._client = client
        self._adapter_factory = adapter_factory
        self._session = session
        self._lease = lease
        self._adapter: HostAdapter | None = None
        self._made_for = session
        self._look_at_host = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_more = False
        self._is_let_go = False
        self._waiting: dict[int, list[Future[ChatTurn]]] = {}

    def place(self, session: ChatSession) -> None:
        """Takes the session as it is now; before the next message its host is looked at."""
        self._session = session
        self._look_at_host = True

    def expect(self, turn: ChatTurn) -> Future[ChatTurn]:
        """The end of a message, and work on it if nobody works."""
        future: Future[ChatTurn] = Future()
        future.set_running_or_notify_cancel()  # one that waits may give up; the message is answered all the same
        with self._lock:
            self._waiting.setdefault(turn.seq, []).append(future)
        known = self._store.turn(turn.session_id, turn.client_turn_id)
        if known.is_over:
            self._tell(known)
        elif self._is_let_go:  # between the acceptance and here: nobody works any more
            self._fail(_let_go())
        else:
            self.go_on()
        return future

    def go_on(self) -> None:
        """Works the queue, in a thread that ends with it."""
        with self._lock:
            self._has_more = True
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._work, name="turn-journal-chat", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Begins no further message."""
        self._stopping.set()

    def close(self, *, at_once: bool, cancel: bool = False) -> None:
        """Waits for the message at hand, or ends it; then lets go of the session, and of what is not over."""
        self.stop()
        if at_once and self._adapter is not None:
            answered(self._adapter.close())
        thread = self._thread
        if thread is not None:
            thread.join()
        if self._adapter is not None:
            answered(self._adapter.close())
        if cancel:
            self._store.cancel_rest(self._session.session_id)
        self._lease.release()
        for turn in self._store.turns(self._session.session_id):
            if turn.is_over:
                self._tell(turn)
        self._is_let_go = True
        self._fail(_let_go())

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._has_more or self._stopping.is_set():
                    self._thread = None
                    return
                self._has_more = False
            try:
                while not self._stopping.is_set() and (turn := self._store.begin_next(self._session.session_id)):
                    ended = self._answer_turn(turn)
                    if ended is not None:
                        self._tell(ended)
            except BaseException as error:
                # Nothing is lost: the message stays accepted, and whoever resumes the session goes on with it.
                self._fail(error)

    def _answer_turn(self, turn: ChatTurn) -> ChatTurn | None:
        """One message to its end; None when it is left to be recovered."""
        try:
            result = self._drive(turn, retry_failed=False)
            while result.status == "failed":
                if result.failure_kind == "session_missing":
                    run(self._sessions(turn).forget(), self._client)  # the next message starts another one
                if result.retry_due is None:
                    return self._end(turn, "failed", None, result.failure_kind or result.failed_phase)
                if self._stopping.wait(max(result.retry_due - time.time(), 0)):
                    return None
                # Somebody may have given it up meanwhile: then its recorded failure is its end.
                result = self._drive(turn, retry_failed=not self._is_given_up(turn))
        except TurnRecoveryBlockedError as error:
            return self._end(turn, "failed", None, error.decision["reason"])
        if "result_kind" not in (result.result or {}):
            # It was answered before a death that nobody noticed for so long that its turn was pruned.
            return self._end(turn, "failed", None, "answer_pruned")
        return self._end(turn, "answered", result.result, None)

    def _is_given_up(self, turn: ChatTurn) -> bool:
        root, plan = open_root(self._root, self._client), plan_turn(**self._identity(turn))
        return run(given_up_by(root, plan.goal_id, plan.turn_key), self._client) is not None

    def _drive(self, turn: ChatTurn, *, retry_failed: bool) -> TurnResult:
        binding = run(self._sessions(turn).binding(), self._client)
        known = {"action": "start_new"} if binding is None else {"action": "resume", "id": binding.get("session_id")}
        return run_turn(
            self._root,
            **self._identity(turn),
            host=self._host(),
            host_input={"message": turn.message, "objective": self._session.objective, "seq": turn.seq},
            session={**known, "context_policy": _POLICY},
            retry_failed=retry_failed,
            client=self._client,
        )

    def _host(self) -> HostAdapter:
        """The session's host; another one when it is missing, not well, or made for another folder or objective."""
        if self._adapter is not None and self._look_at_host:
            self._look_at_host = False
            if self._made_for != self._session or not answered(self._adapter.healthcheck()):
                adapter, self._adapter = self._adapter, None
                answered(adapter.close())
        if self._adapter is None:
            self._made_for = self._session
            self._adapter = self._adapter_factory(self._session)
        return self._adapter

    def _sessions(self, turn: ChatTurn) -> TurnSessions:
        bindings = open_root(self._root, self._client).bindings
        return TurnSessions(bindings, plan_turn(**self._identity(turn)), {"context_policy": _POLICY})

    def _identity(self, turn: ChatTurn) -> _Identity:
        return {"goal_id": _GOAL, "agent_id": turn.session_id, "todo_id": f"message-{turn.seq}"}

    def _end(
        self,
        turn: ChatTurn,
        status: Literal["answered", "failed"],
        result: Mapping[str, Any] | None,
        reason: str | None,
    ) -> ChatTurn:
        return self._store.end(turn.session_id, turn.seq, status=status, result=result, reason=reason)

    def _tell(self, turn: ChatTurn) -> None:
        with self._lock:
            futures = self._waiting.pop(turn.seq, [])
        for future in futures:
            future.set_result(turn)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            futures = [future for waiting in self._waiting.values() for future in waiting]
            self._waiting.clear()
        for future in futures:
            future.set_exception(error)


def _let_go() -> RuntimeError:
    return RuntimeError("The conversation was let go of; resume_session takes it up.")
