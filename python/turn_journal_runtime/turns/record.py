"""A turn's journal in the hands of its driver: as it is stored, and as it is to stand next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import JournalNotFoundError
from ..journal_flows import interpret, read, write
from . import transitions

if TYPE_CHECKING:
    from ..documents import Inspection, RecoveryCheck, StoredJournal
    from ..flow import Flow
    from .plan import TurnPlan
    from .root import Lease, TurnPath


def read_stored(path: TurnPath, goal_id: str, turn_key: str) -> Flow[StoredJournal]:
    """The journal of a turn that must be there.

    Raises:
        JournalNotFoundError: It is not.
    """
    try:
        return (yield from read(path))
    except JournalNotFoundError:
        raise JournalNotFoundError(
            "No such turn is stored: see its goal_id and turn_key.", details={"goal_id": goal_id, "turn_key": turn_key}
        ) from None


class TurnRecord:
    """The journal of one drive. Change `journal`, then `save` it before anything is done that depends on it.

    Args:
        path: Where the turn lives.
        plan: The turn.
        lease: The driver's lease, whose number every write carries.
    """

    def __init__(self, path: TurnPath, plan: TurnPlan, lease: Lease) -> None:
        self.journal: transitions.Journal = {}
        #: Whether the host was called, as far as the recovery under way knows.
        self.host_invoked: bool | None = False
        self._path = path
        self._plan = plan
        self._lease = lease
        self._stored: transitions.Journal | None = None
        self._operation_id: str | None = None

    def read(self) -> Flow[bool]:
        """Reads what is stored, or opens the turn; whether anything was."""
        try:
            stored = yield from read(self._path)
        except JournalNotFoundError:
            self.journal = transitions.opened(self._plan)
            return False
        self.journal = self._stored = stored["journal"]
        self._operation_id = stored["operation_id"]
        return True

    def save(self, *, finished: bool | None = None) -> Flow[None]:
        """Stores the journal, when it differs from what is stored; with its audit when a recovery is under way. That is
        finished when the turn is open no more, unless it is said."""
        if finished is None:
            finished = self.journal["status"] != "in_progress"
        self.journal = transitions.audited(self.journal, finished=finished, host_invoked=self.host_invoked)
        if self.journal == self._stored:
            return
        self._lease.check()
        written = yield from write(
            self._path,
            self.journal,
            expected_effect_id=self._plan.effect_id,
            expected_previous=self._operation_id,
            lease=self._lease.number,
        )
        self._stored, self._operation_id = self.journal, written["operation_id"]

    def stand_still(self) -> Flow[None]:
        """Stores that the drive ends in good order with the turn open: that is no recovery to be counted."""
        self.journal = transitions.not_counted(self.journal)
        yield from self.save(finished=True)

    def inspect(self, *, retry_failed: bool, check: RecoveryCheck | None = None) -> Flow[Inspection]:
        """Asks the core about the journal as it is."""
        plan = self._plan
        return interpret(
            self.journal,
            goal_id=plan.goal_id,
            agent_id=plan.agent_id,
            turn_key=plan.turn_key,
            retry_failed=retry_failed,
            session_recovery_check=check,
        )

    def planned(self, part: str) -> dict[str, Any]:
        """A part of the plan as it is stored."""
        found = self.journal["plan"].get(part)
        return dict(found) if isinstance(found, dict) else {}

    def planned_session(self) -> dict[str, Any]:
        """How the host's session was planned."""
        return self.planned("session") or {"action": "start_new"}
