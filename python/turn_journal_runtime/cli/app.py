"""The `turn-journal` command: which commands there are, and under which heading."""

from __future__ import annotations

from typing import Annotated

import typer

from . import (
    demo,
    doctor,
    ending,
    giving_up,
    history,
    lineage,
    listing,
    node,
    recovery,
    replay,
    retention,
    runs,
    store,
    transfer,
    turns,
    verification,
    worker,
)
from .explanations import EXIT_CODES

_EPILOG = "Exit codes: " + " · ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."

app: typer.Typer = typer.Typer(
    name="turn-journal",
    help="Durable turns for AI agents: what happened, what may happen next, and why.",
    epilog=_EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("turn-journal-runtime"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Durable turns for AI agents: what happened, what may happen next, and why."""


app.command(rich_help_panel="Turns")(turns.inspect)
app.command("list", rich_help_panel="Turns")(listing.list_turns)
app.command(rich_help_panel="Turns")(turns.show)
app.command(rich_help_panel="Turns")(history.history)
app.command(rich_help_panel="Turns")(recovery.recover)
app.command("give-up", rich_help_panel="Turns")(giving_up.give_up)
app.command(rich_help_panel="Turns")(worker.worker)

app.command(rich_help_panel="The store")(verification.verify)
app.command(rich_help_panel="The store")(verification.heads)
app.command(rich_help_panel="The store")(verification.repair)
app.command(rich_help_panel="The store")(retention.prune)

_store = typer.Typer(no_args_is_help=True, help="A whole store: its tables, and its copies.")
_store.command()(store.migrate)
_store.command()(store.copy)
app.add_typer(_store, name="store", rich_help_panel="The store")

app.command(rich_help_panel="Runs")(runs.runs)
app.command(rich_help_panel="Runs")(runs.settle)
app.command(rich_help_panel="Runs")(runs.approve)

_run = typer.Typer(no_args_is_help=True, help="One run of an agent loop, and the journal of all.")
_run.command()(runs.show)
_run.command()(replay.check)
_run.command()(lineage.diff)
_run.command()(lineage.fork)
_run.command()(transfer.export)
_run.command("import")(transfer.import_run)
_run.command()(transfer.backup)
_run.command()(ending.close)
_run.command()(ending.delete)
_run.command("prune")(retention.prune_runs)
_run.command()(retention.vacuum)
app.add_typer(_run, name="run", rich_help_panel="Runs")

_node = typer.Typer(no_args_is_help=True, help="The Node that runs the core.")
_node.command()(node.install)
app.add_typer(_node, name="node", rich_help_panel="This machine")
app.command(rich_help_panel="This machine")(doctor.doctor)
app.command(rich_help_panel="This machine")(demo.demo)
