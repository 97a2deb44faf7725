"""A runtime root that is a database, for turns that are driven on many hosts: session-recovery.md, section 4.

The core keeps turns, leases and bindings there; this module says who drives, for as long as it does, and hears of a
turn that was lost.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ..address import turn_journal_path
from ..errors import JournalStoreError, TurnBusyError, TurnJournalError
from ..flow import Call
from ..settings import current
from .heartbeat import HeldLease, now
from .lease import LeaseHolder, busy

if TYPE_CHECKING:
    from ..bridge import RuntimeClient
    from ..flow import Flow
    from ..run_journal import RunJournal
    from .root import Bindings, Lease, TurnPath


class DatabaseRoot:
    """A database that holds turns.

    Args:
        url: `postgresql://…`.
        client: What renews leases and stores bindings, from any thread.
    """

    def __init__(self, url: str, client: RuntimeClient) -> None:
        self.address = url
        self._client = client
        self.bindings: Bindings = _BindingRows(url, client)

    def path(self, goal_id: str, turn_key: str) -> TurnPath:
        """The turn's name in the database."""
        return turn_journal_path(self.address, goal_id=goal_id, turn_key=turn_key)

    def acquire(self, path: TurnPath, *, take_over: bool = False) -> Flow[Lease]:
        """Takes the lease of a turn, and renews it from now on."""
        seconds = current().turn_lease
        asked = now()
        params = {"path": path, "holder": _holder(), "ttl_ms": round(seconds * 1000), "take_over": take_over}
        params["claim"] = str(uuid.uuid4())
        asking = Call("turn_lease.acquire", params)
        try:
            held = yield asking
        except TurnBusyError as error:
            raise _busy(error) from None
        except TurnJournalError:
            raise
        except BaseException:
            # Nobody waits for the answer any more. Asked again it is the same lease, and nobody is to wait for its end.
            with contextlib.suppress(TurnJournalError):
                held = yield asking
                yield Call("turn_lease.release", {"path": path, "number": held["number"]})
            raise
        return HeldLease(self._client, str(path), held["number"], seconds, asked)

    def is_driven(self, path: TurnPath) -> Flow[bool]:
        """Whether a lease of the turn is in time."""
        found = yield Call("turn_lease.holder", {"path": path})
        return bool(found["remaining_ms"] > 0)

    def runs(self) -> contextlib.AbstractContextManager[RunJournal]:
        """The run journal in the same database: one for this process, as connections are dear."""
        return contextlib.nullcontext(_run_journal(self.address))

    def runs_there(self) -> contextlib.AbstractContextManager[RunJournal | None]:
        """The same, when the database has the tables of runs."""
        try:
            return self.runs()
        except JournalStoreError as error:
            if error.kind != "store_schema_missing":
                raise
            return contextlib.nullcontext()


_run_journals: Final[dict[str, RunJournal]] = {}


def _run_journal(url: str) -> RunJournal:
    from ..run_journal import RunJournal

    found = _run_journals.get(url)
    if found is None:
        opened = RunJournal(url)
        # Of two threads that get here at once one wins. No lock, which a fork could leave held for ever.
        found = _run_journals.setdefault(url, opened)
        if found is not opened:
            opened.close()
    return found


@atexit.register
def close_run_journals() -> None:
    """Closes those of this process; the next turn opens its own again."""
    for url in list(_run_journals):
        journal = _run_journals.pop(url, None)
        if journal is not None:
            journal.close()


def _holder() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": platform.node()}


def _busy(error: TurnBusyError) -> TurnBusyError:
    found = error.details
    holder = found.get("holder") or {}
    since, until = _seconds(found.get("since")), _seconds(found.get("expires_at"))
    return busy(LeaseHolder(found.get("number") or 0, holder.get("pid"), holder.get("host"), since), until)


def _seconds(moment: Any) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else None


class _BindingRows:
    """A row for each line of work."""

    def __init__(self, url: str, client: RuntimeClient) -> None:
        self._url = url
        self._client = client

    def read(self, goal_id: str, line: str) -> Flow[dict[str, Any] | None]:
        """The binding in a line's row."""
        found = yield Call("turn_session.read", self._where(goal_id, line))
        binding: dict[str, Any] | None = found["binding"]
        return binding

    def write(self, goal_id: str, line: str, binding: dict[str, Any]) -> None:
        """Replaces a line's row."""
        self._client.call("turn_session.write", {**self._where(goal_id, line), "binding": binding})

    def remove(self, goal_id: str, line: str) -> Flow[None]:
        """Removes a line's row."""
        yield Call("turn_session.write", {**self._where(goal_id, line), "binding": None})

    def _where(self, goal_id: str, line: str) -> dict[str, Any]:
        return {"runtime_root": self._url, "goal_id": goal_id, "line": line}
