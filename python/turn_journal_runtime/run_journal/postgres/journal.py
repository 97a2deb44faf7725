"""`RunJournal("postgresql://…")`: the events of agent runs in a database that many hosts share."""

from __future__ import annotations

import itertools
import os
import secrets
from contextlib import ExitStack
from functools import partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from ...errors import InvalidJournalError, JournalStoreError, StoreUnavailableError
from ...settings import current
from ..copying import run_ids
from ..events import RUNNING, JournalEvent
from ..faults import decode_stored
from ..filesystem import refuse_taken
from ..journal import RunJournal
from ..payload import DamagedPayload, decode
from .address import Address
from .database import Database
from .drive import PostgresDrive, claim
from .leases import Leases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..connection import Durability

__all__ = ["PostgresRunJournal"]

P = ParamSpec("P")
T = TypeVar("T")

_UPSERT: Final = (
    "ON CONFLICT (run_id, seq, kind) DO UPDATE SET payload = excluded.payload, created_at = excluded.created_at, "
    "writer = excluded.writer, write_number = excluded.write_number "
    "WHERE journal.writer IS DISTINCT FROM excluded.writer OR journal.write_number < excluded.write_number"
)
_APPEND: Final = (
    "INSERT INTO journal (run_id, seq, kind, payload, created_at, writer, write_number) "
    f"VALUES ($1, $2, $3, $4, $5, $6, $7) {_UPSERT}"
)
_APPEND_MANY: Final = (
    "INSERT INTO journal (run_id, seq, kind, payload, created_at, writer, write_number) "
    "SELECT run_id, seq, kind, payload, created_at, $6::bigint, $7::bigint "
    "FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::double precision[]) "
    f"WITH ORDINALITY AS event (run_id, seq, kind, payload, created_at, place) ORDER BY place {_UPSERT}"
)
_EVENTS: Final = "SELECT seq, kind, payload, created_at FROM journal WHERE run_id = $1 ORDER BY seq, rowid"
_INDEX: Final = "SELECT seq, kind, payload FROM journal WHERE run_id = $1 ORDER BY seq, rowid"
_ITERATIONS: Final = "SELECT payload FROM journal WHERE run_id = $1 AND kind = 'iteration'"
_RUNNING: Final = (
    "SELECT runs.run_id, owner, place, COALESCE(expires_at > clock_timestamp(), false) FROM runs "
    "LEFT JOIN run_drives ON run_drives.run_id = runs.run_id LEFT JOIN run_owners ON token = owner "
    "WHERE status = $1 ORDER BY runs.created_at, runs.rowid"
)


def _repeated(
    method: Callable[Concatenate[PostgresRunJournal, P], T],
) -> Callable[Concatenate[PostgresRunJournal, P], T]:
    """A method whose transaction is begun again when its connection was lost or another one was in its way."""

    @wraps(method)
    def repeat(self: PostgresRunJournal, /, *args: P.args, **keywords: P.kwargs) -> T:
        return self._database.repeat(partial(method, self, *args, **keywords))

    return repeat


class PostgresRunJournal(RunJournal):
    """What `RunJournal` makes of a `postgresql://` address.

    Args:
        db_path: The address; its secrets appear nowhere.
        durability: Either; what is acknowledged is on the server's disk.
        redact: As for a file.

    Raises:
        StoreUnavailableError: The server cannot be reached.
        JournalStoreError: `store_schema_missing`, `store_schema_older` or `store_schema_newer`: opening makes no
            tables. `store_denied` when the server refuses this user.

    Specified in run-journal.md, section 1.
    """

    _database: Database  # type: ignore[assignment]
    _ownership: Leases

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        *,
        durability: Durability = "process",
        redact: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        database = Database(Address(str(db_path)), durability)
        self._begin(database, Leases(database, current().run_lease), redact)  # type: ignore[arg-type] # it answers alike
        self._writer: tuple[int, int] | None = None
        self._numbers = itertools.count(1)

    # Events

    def append(self, event: JournalEvent) -> None:
        """Stores an event under its run, number and kind; the same again replaces the payload, not the place."""
        self._database.write(_APPEND, (*self._row(event), *self._key()))

    def append_many(self, events: Iterable[JournalEvent]) -> None:
        """Stores events, all or none."""
        # Of those of one step and kind the first gives the place and the last the payload.
        rows = {row[:3]: row for row in map(self._row, events)}
        if rows:
            run_ids, numbers, kinds, payloads, times = map(list, zip(*rows.values(), strict=True))
            row = (run_ids, numbers, kinds, payloads, _times(times), *self._key())
            self._database.write(_APPEND_MANY, row)

    def events(self, run_id: str) -> list[JournalEvent]:
        """A run's events by number, those of one step in the order in which they were first stored."""

        def gather(rows: Iterator[tuple[Any, ...]]) -> list[JournalEvent]:
            return [
                JournalEvent(run_id, seq, kind, decode_stored(run_id, seq, kind, payload), created_at)
                for seq, kind, payload, created_at in rows
            ]

        return self._database.collect(_EVENTS, (run_id,), gather)

    def replay_index(self, run_id: str) -> dict[tuple[int, str], dict[str, Any]]:
        """A run's payloads by number and kind, for memoised replay."""

        def gather(rows: Iterator[tuple[Any, ...]]) -> dict[tuple[int, str], dict[str, Any]]:
            return {(seq, kind): decode_stored(run_id, seq, kind, payload) for seq, kind, payload in rows}

        return self._database.collect(_INDEX, (run_id,), gather)

    def last_iteration(self, run_id: str) -> int | None:
        """The highest recorded iteration index, or None."""

        def gather(rows: Iterator[tuple[Any, ...]]) -> int | None:
            return max((index for (payload,) in rows if type(index := _index(payload)) is int), default=None)

        return self._database.collect(_ITERATIONS, (run_id,), gather)

    def _key(self) -> tuple[int, int]:
        """What an append is known by when it arrives twice; a forked child is another writer."""
        process = os.getpid()
        if self._writer is None or self._writer[0] != process:
            self._writer = (process, secrets.randbits(63))
        return self._writer[1], next(self._numbers)

    # Runs

    def interrupted_runs(self, *, include_owned: bool = False) -> list[str]:
        """The runs that are still `running`, oldest first."""
        read = partial(self._database.read, _RUNNING, (RUNNING,))
        if include_owned:
            return [run_id for run_id, *_ in read()]
        standing = self._ownership.standing(read, self._ownership.drives)
        return [run_id for (run_id, *_), is_driven in standing if not is_driven]

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copies all runs that were opened, as they are at one moment, into a new journal that is a file."""
        target = Path(path).absolute()
        refuse_taken(target)
        with self._database.snapshot(), ExitStack() as stack:
            try:
                folder = stack.enter_context(TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent))
            except OSError as error:
                raise JournalStoreError(
                    f"The backup {target} cannot be written: {error.strerror}.", details={"path": str(target)}
                ) from error
            copy = stack.enter_context(RunJournal(Path(folder) / "journal.db"))
            for run_id in run_ids(self):
                copy.import_run(self.export(run_id))
            copy.backup(target)

    # The life of the handle

    def _claim(self, driver: object, run_id: str, **wanted: Any) -> PostgresDrive:
        def work() -> PostgresDrive:
            try:
                return claim(self, driver, run_id, **wanted)
            except StoreUnavailableError:
                self._ownership.end(run_id, driver)  # the claim was not committed
                raise

        return self._database.repeat(work)

    @property
    def _writers(self) -> int:
        return self._database.connections


def _times(times: list[Any]) -> list[float]:
    try:
        return [float(time) for time in times]
    except (TypeError, ValueError) as error:
        raise InvalidJournalError(f"A time of an event is no number: {error}.", kind="invalid_request") from error


def _index(payload: bytes) -> Any:
    try:
        found = decode(payload)
    except DamagedPayload:
        return None
    return found.get("index") if isinstance(found, dict) else None


# What they take and give is said once, by the class above: here they are only begun again.
for _name in ("delete_run", "_remove", "uncertain", "settle", "approve", "fork", "diff", "export", "_close", "_put"):
    setattr(PostgresRunJournal, _name, _repeated(getattr(RunJournal, _name)))
