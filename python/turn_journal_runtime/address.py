"""Where a turn lives, on disk or in a database: turn-journal.md, section 1.

The core holds the same rules and refuses what gets past these; the contract cases of addresses run against both.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import Final, overload

from .errors import InvalidJournalError

_HASHED_KEY = re.compile(r"sha256:([0-9a-f]{64})")
_READABLE_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HEX_NAME = re.compile(r"[0-9a-fA-F]{64}")
_MAX_GOAL_ID_BYTES = 200
# ECMAScript white space and line terminators, which the core trims; Python's own strip() takes a few more.
_WHITE_SPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))


#: How the URL of a database begins. Nothing else that is taken for a root does.
_DATABASES: Final = ("postgresql://", "postgres://")
#: Any URL; as a `Path` it has one slash. One letter is a drive of Windows.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_database(runtime_root: str | os.PathLike[str]) -> bool:
    """Whether a root, or a path under one, is in a database."""
    return isinstance(runtime_root, str) and runtime_root.startswith(_DATABASES)


def absolute(path: str | os.PathLike[str]) -> str:
    """A root, or a path under one, as the core takes it: absolute, or the URL of a database as it is.

    Raises:
        InvalidJournalError: `invalid_request`, when it is some other URL: no folder is made of it, and of its password.
    """
    if isinstance(path, str) and is_database(path):
        return path
    if _URL.match(os.fspath(path)):
        raise InvalidJournalError(
            "A place is a folder or file, or the URL of a database: text that begins with postgresql://.",
            kind="invalid_request",
            details={"field": "path"},
        )
    return os.path.abspath(path)


@overload
def turn_journal_path(runtime_root: os.PathLike[str], *, goal_id: str, turn_key: str) -> Path: ...
@overload
def turn_journal_path(runtime_root: str | os.PathLike[str], *, goal_id: str, turn_key: str) -> Path | str: ...
def turn_journal_path(runtime_root: str | os.PathLike[str], *, goal_id: str, turn_key: str) -> Path | str:
    """The path of a turn's journal; nothing is read or created.

    Args:
        runtime_root: The folder that holds all turns, or the URL of a database, `postgresql://…`.
        goal_id: One path segment of at most 200 UTF-8 bytes.
        turn_key: `sha256:` and 64 lower-case hex digits, or up to 128 letters, digits, `.`, `_` and `-`.

    Returns:
        `<runtime_root>/goals/<goal_id>/turns/<name>.json`, absolute; for a database, `<URL>#goals/…` as text.

    Raises:
        InvalidJournalError: `invalid_request`, when goal or key cannot name a turn.

    Specified in turn-journal.md, section 1.
    """
    if not _is_goal_id(goal_id):
        raise InvalidJournalError(
            "A goal_id is one path segment of at most 200 bytes, without control characters.",
            kind="invalid_request",
            details={"field": "goal_id"},
        )
    within = f"goals/{goal_id}/turns/{_name_of(turn_key)}.json"
    return f"{runtime_root}#{within}" if is_database(runtime_root) else Path(absolute(runtime_root), within)


def _is_goal_id(goal_id: str) -> bool:
    if not isinstance(goal_id, str) or goal_id in (".", "..") or not goal_id.strip(_WHITE_SPACE):
        return False
    if "/" in goal_id or "\\" in goal_id or any(unicodedata.category(character) == "Cc" for character in goal_id):
        return False
    try:
        return len(goal_id.encode()) <= _MAX_GOAL_ID_BYTES
    except UnicodeEncodeError:
        return False


def _name_of(turn_key: str) -> str:
    if isinstance(turn_key, str):
        hashed = _HASHED_KEY.fullmatch(turn_key)
        if hashed:
            return hashed[1]
        if _READABLE_KEY.fullmatch(turn_key) and not _HEX_NAME.fullmatch(turn_key):
            return turn_key
    raise InvalidJournalError(
        "A turn_key is sha256:<64 lower-case hex> or up to 128 letters, digits, '.', '_' and '-', "
        "starting with a letter or digit.",
        kind="invalid_request",
        details={"field": "turn_key"},
    )
