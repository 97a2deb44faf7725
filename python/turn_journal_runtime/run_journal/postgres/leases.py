"""Who is alive, for drivers on many hosts.

An owner renews its time by the clock of the database, and counts as dead when it has passed. On the host where it ran
it is dead at once when its process is: it also holds a lock on a local file, as it does beside a journal that is a
file. Being taken for dead costs nobody more than the run: every append asks for the fence. Specified in
run-journal.md, section 4.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...errors import JournalStoreError, TurnJournalError
from ..connection import MEMORY
from ..filesystem import home, refuse_network_file_system
from ..liveness import Owner, is_alive
from ..ownership import Ownership

if TYPE_CHECKING:
    from .database import Database

__all__ = ["Leases"]

_RENEW: Final = (
    "INSERT INTO run_owners (token, place, expires_at) VALUES (?, ?, clock_timestamp() + ? * interval '1 second') "
    "ON CONFLICT (token) DO UPDATE SET expires_at = excluded.expires_at"
)
_STANDING: Final = "SELECT place, expires_at > clock_timestamp() FROM run_owners WHERE token = ?"
_SWEEP: Final = "DELETE FROM run_owners WHERE expires_at < clock_timestamp() - interval '1 day'"


class Leases(Ownership):
    """What one handle owns, and its view of the others.

    Args:
        database: The database.
        seconds: How long an owner that says nothing counts as alive.
    """

    def __init__(self, database: Database, seconds: float) -> None:
        self._database = database
        self._seconds = seconds
        super().__init__(database.path)
        self._when_free = f"when it dies, the run is free within {seconds:g} s, and at once on its own host"

    def _reset(self) -> None:
        super()._reset()
        self._place: str | None = None
        self._stopped = threading.Event()

    def owner(self) -> Owner:
        """The owner of this handle, made and announced when it is first needed."""
        with self._lock:
            if self._owner is None:
                owner, self._place = _local_owner()
                self._database.write(_SWEEP, ())
                self._announce(owner)
                self._owner = owner
                self._stopped = threading.Event()
                threading.Thread(
                    target=_renew, args=(weakref.ref(self), self._stopped, self._seconds / 3), daemon=True
                ).start()
            return self._owner

    def _announce(self, owner: Owner) -> None:
        self._database.write(_RENEW, (owner.token, self._place, self._seconds))

    def renew(self) -> None:
        """Says that this owner lives."""
        owner = self._owner
        if owner is not None and not self._stopped.is_set():
            self._announce(owner)

    def is_driven(self, run_id: str, token: str | None) -> bool:
        """Whether the owner that is noted on a run lives and drives it."""
        found = self._database.read(_STANDING, (token,)) if token is not None else []
        return self.drives(run_id, token, *(found[0] if found else (None, False)))

    def drives(self, run_id: str, token: str | None, place: str | None, is_in_time: bool) -> bool:
        """As `is_driven`, with what is noted of the owner."""
        if token is None or token in self._dead:
            return False
        if self._owner is not None and token == self._owner.token:
            return run_id in self._drivers
        return is_in_time and self._lives(token, place)

    def _lives(self, token: str, place: str | None) -> bool:
        """False when the owner died on this host; an owner elsewhere lives until its time has passed."""
        if place is None or place != _place_here() or is_alive(_lock_path(), token):
            return True
        self._dead.add(token)
        return False

    def release(self) -> None:
        """Gives up every run of this handle."""
        self._stopped.set()
        owner = self._owner
        super().release()
        if owner is not None:
            self._database.try_to_write("DELETE FROM run_owners WHERE token = ?", (owner.token,))


def _renew(leases: weakref.ref[Leases], stopped: threading.Event, seconds: float) -> None:
    while not stopped.wait(seconds):
        alive = leases()
        if alive is None:
            return
        # An owner that could not say so in time learns it at its next append.
        with suppress(TurnJournalError):
            alive.renew()
        del alive


def _lock_path() -> str:
    return str(home() / "runs" / "postgres")


def _place_here() -> str | None:
    """The name of the folder of lock files, which other hosts do not see; None when there is none yet."""
    with suppress(OSError):
        return (Path(f"{_lock_path()}.owners") / "place").read_text()
    return None


def _local_owner() -> tuple[Owner, str | None]:
    """An owner with a lock that proves its death on this host, where a local folder for it can be had."""
    folder = Path(f"{_lock_path()}.owners")
    try:
        refuse_network_file_system(folder)
        owner = Owner(_lock_path())
        place = _place_here()
        if place is None:
            made = folder / f"place.{owner.token}"
            made.write_text(os.urandom(16).hex())
            # The first one to name the place has named it for all.
            with suppress(FileExistsError):
                os.link(made, folder / "place")
            made.unlink()
            place = _place_here()
    except (OSError, JournalStoreError):
        return Owner(MEMORY), None
    return owner, place
