"""Sleeps that outlive their process: a step's record says until when it waits, and a later drive waits for the rest.

That moment is one of the wall clock, the only clock that another process and another host read, too. Specified in
run-journal.md, section 4; ts/src/run/Sleeps.ts is its twin.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidJournalError, TurnSuspended
from ..observability import observed_step
from .faults import decode_row
from .recording import Call, Write
from .stepping import DurableSteps, as_number

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .database import Database
    from .drive import Drive
    from .recording import Step

__all__ = ["PendingSleep", "Sleeping", "pending"]

#: Seconds after which one that sleeps looks whether the run is still its own.
LOOK: Final = 5.0
#: The end of the year 9999, which a date can say.
_LAST: Final = 253_402_300_799.0
SLEEP: Final = "sleep"
SLEEP_UNTIL: Final = "sleep_until"


@dataclass(frozen=True, slots=True)
class PendingSleep:
    """A sleep whose time has not come.

    Args:
        run_id: The run that sleeps.
        seq: The number of its step.
        until: When it goes on, in seconds since the epoch.

    Specified in run-journal.md, section 4.
    """

    run_id: str
    seq: int
    until: float


def pending(database: Database, run_id: str | None) -> list[PendingSleep]:
    """The sleeps of running runs whose time has not come, those of one run by number."""
    rows = database.read(
        # In this order: what tools returned may be large, and is not read.
        "SELECT journal.run_id, seq, CAST(payload AS BLOB) FROM runs JOIN journal ON journal.run_id = runs.run_id "
        "WHERE status = 'running' AND kind = 'tool_result' AND runs.run_id = COALESCE(?, runs.run_id) AND "
        "CASE WHEN EXISTS (SELECT 1 FROM journal AS call WHERE call.run_id = journal.run_id AND call.seq = journal.seq "
        "AND call.kind = 'tool_call') THEN false ELSE payload LIKE ? END ORDER BY runs.created_at, seq",
        (run_id, f'%"name":"{SLEEP}%'),
    )
    now = time.time()
    found = []
    for run, seq, payload in rows:
        until = until_of(decode_row(run, seq, "tool_result", payload))
        if until is not None and until > now:
            found.append(PendingSleep(run, seq, until))
    return found


def until_of(payload: dict[str, Any]) -> float | None:
    """Until when a step sleeps; None when it is no sleep."""
    until = as_number(payload.get("result")) if payload.get("name") in (SLEEP, SLEEP_UNTIL) else None
    return until if until is not None and 0 <= until <= _LAST else None


class Sleeping(DurableSteps):
    """The steps that wait for a time."""

    def _pause(self, seconds: float) -> Awaitable[None] | None:
        """Waits that long, or until the drive is not to go on."""
        raise NotImplementedError

    def _sleep(self, seq: int, drive: Drive, seconds: float | timedelta, suspend: bool) -> Step[None]:
        return observed_step(self._take_sleep(seq, drive, seconds, suspend), "sleep", self._run_id, seq)

    def _sleep_until(self, seq: int, drive: Drive, moment: float | datetime, suspend: bool) -> Step[None]:
        return observed_step(self._take_sleep_until(seq, drive, moment, suspend), "sleep", self._run_id, seq)

    def _take_sleep(self, seq: int, drive: Drive, seconds: float | timedelta, suspend: bool) -> Step[None]:
        lasts = as_number(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)
        if lasts is None or not 0 <= lasts <= _LAST:
            raise InvalidJournalError(
                f"A sleep is a number of seconds that is not negative, or a timedelta, not {seconds!r:.80}.",
                kind="invalid_request",
            )
        until = yield from self._value(
            seq, drive, SLEEP, lambda: min(time.time() + lasts, _LAST), as_number, seconds=lasts
        )
        yield from self._wait(seq, drive, until, lasts, suspend)

    def _take_sleep_until(self, seq: int, drive: Drive, moment: float | datetime, suspend: bool) -> Step[None]:
        is_local = isinstance(moment, datetime) and moment.utcoffset() is None
        until = None if is_local else as_number(moment.timestamp() if isinstance(moment, datetime) else moment)
        if until is None or until > _LAST:
            raise InvalidJournalError(
                "A moment is a number of seconds since the epoch, or a datetime with a time zone, and before the end "
                f"of the year 9999, not {moment!r:.80}.",
                kind="invalid_request",
            )
        yield from self._value(seq, drive, SLEEP_UNTIL, lambda: until, as_number, until=until)
        yield from self._wait(seq, drive, until, math.inf, suspend)

    def _wait(self, seq: int, drive: Drive, until: float, longest: float, suspend: bool) -> Step[None]:
        if drive.token is None:
            return  # the run has ended, and is only replayed
        begun = time.monotonic()
        # A clock that is set back makes no sleep longer than it was to be.
        while (left := min(until - time.time(), longest - (time.monotonic() - begun))) > 0:
            if suspend:
                raise self._halt(
                    TurnSuspended(
                        f"Run {self._run_id!r} sleeps at step {seq} until "
                        f"{datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M:%S} UTC. Drive it again then.",
                        details={"run_id": self._run_id, "seq": seq, "due_at": until},
                    )
                )
            yield Call(self._pause, min(left, LOOK))
            self._must_go_on()
            yield Write(drive.look)
