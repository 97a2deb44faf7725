"""What a command shows: built once out of a few blocks, shown as a table, as JSON or as Markdown."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Format(StrEnum):
    """How a command's answer is written."""

    table = "table"
    json = "json"
    markdown = "markdown"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text; `style` is one of rich's."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """What the next blocks are about."""

    text: str
    style: str = "bold"


@dataclass(frozen=True, slots=True)
class Points:
    """A list of short texts."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rows:
    """A table; `styles` colours a cell by its text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    styles: dict[str, str] = field(default_factory=dict)


#: Control characters, those that reorder a line, and halves of characters.
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value, as it is."""

    value: Any


@dataclass(frozen=True, slots=True)
class Lines:
    """Text that is the whole answer in whatever format, for another command to read: its lines, in UTF-8."""

    lines: Iterable[str]


Block: TypeAlias = Line | Heading | Points | Rows | Json


@dataclass(frozen=True, slots=True)
class Report:
    """An answer: `document` is its JSON form, `blocks` its readable one."""

    document: Any
    blocks: Sequence[Block]
    #: What the command exits with; see `explanations.EXIT_CODES`.
    code: int = 0


STATUS_STYLES: dict[str, str] = {
    "committed": "green",
    "stopped": "green",
    "done": "green",
    "succeeded": "green",
    "ok": "green",
    "started": "yellow",
    "in_progress": "yellow",
    "running": "yellow",
    "interrupted": "yellow",
    "scheduler_action_required": "yellow",
    "failed": "red",
    "damaged": "red",
    "unreadable": "red",
    "cancelled": "red",
}


def out() -> Console:
    """Standard output, coloured on a terminal and nowhere else; text is never cut in a pipe."""
    return _console(sys.stdout)


def err() -> Console:
    """Standard error."""
    return _console(sys.stderr)


def _console(stream: Any) -> Console:
    terminal = stream.isatty()
    return Console(
        file=stream,
        highlight=False,
        # Rich would take FORCE_COLOR's word; a pipe gets text.
        force_terminal=terminal,
        no_color=None if terminal else True,
        width=None if terminal else 10_000,
        soft_wrap=not terminal,
    )


def show(report: Report, format: Format) -> None:
    """Writes an answer to standard output."""
    if isinstance(report.document, Lines):
        sys.stdout.flush()
        sys.stdout.buffer.writelines(f"{line}\n".encode() for line in report.document.lines)
    elif format is Format.json:
        print(_json(report.document, indent=2))
    elif format is Format.markdown:
        print(markdown(report.blocks))
    else:
        console = out()
        if console.is_terminal:
            _print(console, report.blocks)
        else:
            # A table fills its last column up; in a pipe nobody wants that.
            with console.capture() as written:
                _print(console, report.blocks)
            print("\n".join(line.rstrip() for line in written.get().splitlines()))


def _print(console: Console, blocks: Sequence[Block]) -> None:
    before: Block | None = None
    for block in blocks:
        if before is not None and _apart(before, block):
            console.print()
        console.print(renderable_of(block, console.width))
        before = block


def _apart(before: Block, after: Block) -> bool:
    """Whether an empty line parts two blocks: what is read on its own stands on its own."""
    if isinstance(after, Heading):
        return not isinstance(before, Heading)
    return (isinstance(before, Rows) or isinstance(after, Rows)) and not isinstance(before, Heading)


def counted(number: int, what: str) -> str:
    """So many of something, as a person says it; `what` is one of them."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def renderable_of(block: Block, width: int) -> Any:
    """A block as rich shows it, in so many columns."""
    if isinstance(block, Line | Heading):
        return Text(harmless(block.text), style=block.style)
    if isinstance(block, Points):
        points = Table.grid(padding=(0, 1, 0, 0))
        for text in block.texts:
            points.add_row("  •", Text(harmless(text)))
        return points
    if isinstance(block, Json):
        return Text(harmless(_readable(block.value)))
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    # What a row is called stays whole, so that it can be copied, but for one that leaves the others no room.
    longest = max((len(line) for row in block.rows for line in harmless(row[0]).splitlines()), default=0)
    for number, column in enumerate(block.columns):
        table.add_column(column, overflow="fold", no_wrap=number == 0 and longest * 3 <= width * 2)
    for row in block.rows:
        table.add_row(*(Text(harmless(cell), style=block.styles.get(cell, "")) for cell in row))
    return table


def harmless(text: str) -> str:
    """A text that cannot steer a terminal: what journals and runs are called is their writers' choice."""
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character == "\n" or unicodedata.category(character) not in _UNSEEN:
        return character
    return f"\\u{ord(character):04x}"


def markdown(blocks: Sequence[Block]) -> str:
    """The blocks as Markdown."""
    return "\n\n".join(map(_markdown, blocks))


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"### {harmless(block.text)}"
    if isinstance(block, Line):
        return harmless(block.text)
    if isinstance(block, Points):
        return "\n".join(f"- {harmless(text)}" for text in block.texts)
    if isinstance(block, Json):
        return f"```json\n{harmless(_readable(block.value))}\n```"
    lines = ["| " + " | ".join(block.columns) + " |", "|" + " --- |" * len(block.columns)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in block.rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return harmless(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def show_error(message: str, *, kind: str, details: dict[str, Any], format: Format, hint: str = "") -> None:
    """Writes what went wrong to standard error, as JSON when answers are; `hint` is for a person."""
    if format is Format.json:
        error = {"error": {"kind": kind, "message": message, "details": details}}
        print(_json(error), file=sys.stderr)
    else:
        console, where = err(), details.get("path")
        # A file that the message is about; an address of a database may hold a password, and is none.
        at = f" ({where})" if isinstance(where, str) and os.path.isabs(where) and where not in message else ""
        console.print(Text.assemble(("error", "bold red"), " ", (kind, "dim"), " ", harmless(message + at)))
        if hint:
            console.print(Text(harmless(hint), style="dim"))


def _readable(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _json(document: Any, indent: int | None = None) -> str:
    # Characters that the output's encoding may lack are escaped, and so are lone surrogates that came as file names.
    text = json.dumps(document, ensure_ascii=False, indent=indent, default=str)
    encoding = sys.stdout.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(document, indent=indent, default=str)
    return text
