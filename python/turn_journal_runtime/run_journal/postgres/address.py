"""The address of a database, whose secrets are shown to nobody."""

from __future__ import annotations

import os
from math import ceil
from typing import Any, Final

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ...errors import InvalidJournalError
from ...settings import current

__all__ = ["Address"]

#: A host that is cut off is noticed within half a minute. What the URL says goes before.
_DEFAULTS: Final[dict[str, Any]] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "fallback_application_name": "turn-journal",
}
#: Seconds; libpq takes less for this.
_SHORTEST_CONNECT: Final = 2


class Address:
    """Where a journal is, for libpq in full and for people without what is secret.

    Args:
        url: `postgresql://…`; all of libpq's parameters go through to it, those of TLS and `options` too.

    Raises:
        InvalidJournalError: The URL cannot be read; it is not repeated in the message.
    """

    __slots__ = ("_conninfo", "shown")

    def __init__(self, url: str) -> None:
        given = _parts(url)
        # Raised here, outside of the driver's own error: libpq repeats what it could not read, perhaps the password.
        if given is None:
            raise InvalidJournalError(
                "The address of the database cannot be read. It is postgresql://user:password@host:port/database, with "
                "special characters of the password percent-encoded.",
                kind="invalid_request",
            )
        # Texts are in UTF-8 whatever the database or the environment says: of a database without an encoding the driver
        # would give bytes.
        wanted = dict(_DEFAULTS)
        if "PGCONNECT_TIMEOUT" not in os.environ:
            wanted["connect_timeout"] = max(_SHORTEST_CONNECT, ceil(current().postgres_timeout))
        defaults = {k: v for k, v in wanted.items() if k not in given}
        self._conninfo = make_conninfo(url, **defaults, client_encoding="UTF8")
        host, port, name, user = (given.get(key) for key in ("host", "port", "dbname", "user"))
        place = f"{host or ''}{f':{port}' if port else ''}/{name or ''}"
        #: User, host, port and database; no password, no parameters.
        self.shown: str = f"postgresql://{f'{user}@' if user else ''}{place}"

    def conninfo(self) -> str:
        """What libpq connects with. Secret."""
        return self._conninfo

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def _parts(url: str) -> dict[str, Any] | None:
    """What libpq makes of it. It takes a `/` or `@` of a password for the end of the host: the rest would be shown."""
    authority, _, name = url.partition("://")[2].partition("?")[0].partition("/")
    if authority.count("@") > 1 or "@" in name:
        return None
    try:
        return conninfo_to_dict(url)
    except ProgrammingError:
        return None
