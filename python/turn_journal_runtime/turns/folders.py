"""Folders and files of a runtime root, made for their owner alone and never outside of the root."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from typing import TYPE_CHECKING, Any

from ..errors import JournalStoreError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def make_folder(root: Path, folder: Path) -> None:
    """Makes a folder under a runtime root, with what is missing above it.

    Raises:
        JournalStoreError: `store_unsafe_path`, when a symbolic link on the way leaves the root.
    """
    below = [folder, *folder.parents]
    below = below[: below.index(root)]
    for part in reversed(below):
        check_inside(root, part)
    for missing in reversed([part for part in (folder, *folder.parents) if not part.exists()]):
        with contextlib.suppress(FileExistsError):
            missing.mkdir(mode=0o700)


def check_inside(root: Path, path: Path) -> None:
    """Raises `JournalStoreError` when a path is a symbolic link that leaves the root."""
    if not path.is_symlink():
        return
    inside, real = os.path.realpath(root), os.path.realpath(path)
    if os.path.commonpath([inside, real]) != inside:
        raise JournalStoreError(
            "A symbolic link under the runtime root leaves it: put the folder itself there.", kind="store_unsafe_path"
        )


def replace_file(file: Path, document: Mapping[str, Any]) -> None:
    """Puts a document in the place of a file, as a whole, also when the power goes: as it was, or as it is now."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            json.dump(document, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, file)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
