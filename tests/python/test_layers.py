"""Imports run one way, in both languages: who may import whom is written here and nowhere else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "turn_journal_runtime"
CORE = ROOT / "ts" / "src"

#: Room of the façade → rooms it may import. A room is a module or a package directly under the package root.
FACADE = {
    "errors": set(),
    "observability": {"errors"},
    "documents": set(),
    "settings": {"errors"},
    "json_values": {"errors"},
    "address": {"errors"},
    "forks": set(),
    "typed_command": set(),
    "wal": set(),
    "models": set(),
    "bridge": {"errors", "forks", "settings", "documents", "json_values", "observability"},
    "flow": {"bridge"},
    "session_recovery": {"bridge", "errors", "documents", "flow"},
    "journal_flows": {"address", "flow", "documents", "session_recovery"},
    "journal": {"address", "bridge", "documents", "flow", "journal_flows", "session_recovery"},
    "store_flows": {"address", "flow", "documents"},
    "store": {"bridge", "documents", "flow", "run_journal", "store_flows", "turns"},
    "aio": {
        "address",
        "bridge",
        "documents",
        "flow",
        "journal_flows",
        "replay_check",
        "run_journal",
        "session_recovery",
        "store_copy",
        "store_flows",
        "turns",
    },
    "run_journal": {
        "address",
        "documents",
        "errors",
        "forks",
        "json_values",
        "observability",
        "settings",
        "typed_command",
        "wal",
    },
    "turns": {
        "address",
        "bridge",
        "documents",
        "errors",
        "flow",
        "journal_flows",
        "json_values",
        "observability",
        "run_journal",
        "session_recovery",
        "settings",
        "store_flows",
    },
    "replay_check": {"flow", "run_journal"},
    "store_copy": {"address", "bridge", "documents", "errors", "flow", "run_journal", "store_flows", "turns"},
    "hosts": {"errors", "flow", "run_journal", "turns"},
    "chat": {"address", "bridge", "errors", "flow", "forks", "turns", "wal"},
    "worker": {"address", "bridge", "errors", "flow", "run_journal", "session_recovery", "settings", "turns"},
}

#: Folder of the core → folders it may import.
CORE_FOLDERS = {
    "contract": set(),
    "platform": set(),
    "journal": {"contract"},
    "session": {"contract", "journal"},
    "store": {"contract", "journal", "platform"},
    "run": {"contract", "platform"},
    "rpc": {"contract", "journal", "session", "store", "run"},
}


def _python_imports(path: Path) -> set[str]:
    """The rooms that a module of the façade imports, at run time or for types."""
    room_depth = len(path.relative_to(PACKAGE).parts)
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == room_depth:
            module = node.module or ""
            rooms |= {module.split(".")[0]} if module else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turn_journal_runtime."):
            rooms.add((node.module or "").split(".")[1])
    return rooms


def _room_files(room: str) -> list[Path]:
    folder = PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]


@pytest.mark.parametrize("room", sorted(FACADE))
def test_a_room_of_the_facade_imports_only_what_lies_below_it(room: str) -> None:
    for path in _room_files(room):
        foreign = _python_imports(path) - FACADE[room] - {room}
        assert not foreign, f"{path.relative_to(ROOT)} imports {sorted(foreign)}"


@pytest.mark.parametrize("folder", sorted(CORE_FOLDERS))
def test_a_folder_of_the_core_imports_only_what_lies_below_it(folder: str) -> None:
    for path in sorted((CORE / folder).rglob("*.ts")):
        imported = re.findall(r'from "\.\./(\w+)/', path.read_text(encoding="utf-8"))
        foreign = set(imported) - CORE_FOLDERS[folder] - {folder}
        assert not foreign, f"{path.relative_to(ROOT)} imports {sorted(foreign)}"
