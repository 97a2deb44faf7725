"""`turn-journal worker`: drives the turns of a database that are due, one of many."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from .invocation import FormatOption, ResolverOption, RootOption, answering, callable_named, root_of
from .output import Block, Format, Line, Report, Rows, show

if TYPE_CHECKING:
    from typing import TextIO

    from .documents import WorkerOutcome

_LINE = "%(asctime)s %(levelname)s %(message)s"


@answering
def worker(
    entry: Annotated[
        str,
        typer.Option(
            "--entry",
            "-e",
            help="What drives a turn: `module:function`, sync or async, called with a `DueTurn`.",
            metavar="MODULE:FUNCTION",
            show_default=False,
        ),
    ],
    root: RootOption = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", help="How many turns are driven at a time.", min=1, max=1000)
    ] = 1,
    goal: Annotated[str | None, typer.Option("--goal", "-g", help="Only the turns of this goal.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Failed turns, too.")] = False,
    resolver: ResolverOption = None,
    every: Annotated[
        int,
        typer.Option(
            "--every", help="Seconds between two looks for turns that stopped; one worker looks for all.", min=1, max=60
        ),
    ] = 10,
    grace: Annotated[
        float, typer.Option("--grace", help="Seconds that turns at hand get when it is told to stop.", min=0)
    ] = 30.0,
    format: FormatOption = Format.table,
) -> Report:
    """Drive the turns of a database that are due, until told to stop (SIGTERM, Ctrl-C).

    The entry point is called as by `recover`, for several turns at a time. Any number of workers on any number of
    hosts share the work; one that dies loses nothing. Its log, a line for each event, goes to standard error. When it
    is told to stop it takes no more turns, gives those at hand the grace, releases what can be cancelled, and exits
    with 0; with 1 when it had to leave turns, which are free when their leases end. A second signal ends it at once.
    """
    runtime_root = root_of(root)
    drive = callable_named(entry, "--entry")
    resolve = None if resolver is None else callable_named(resolver, "--resolver")
    # The queue's library comes with an extra.
    from ..worker import run_worker
    from ..worker.log import LOGGER

    _log_to(sys.stderr, LOGGER)
    work = run_worker(
        runtime_root,
        drive,
        concurrency=concurrency,
        goal_id=goal,
        retry_failed=retry_failed,
        session_binding_resolver=resolve,
        every=every,
        grace=grace,
    )
    with asyncio.Runner() as runner:
        events, left = runner.run(work)
        report = _report({"ok": left == 0, "events": events, "left": left})
        if left or asyncio.all_tasks(runner.get_loop()):
            # What still runs has had its time, and nothing waits for it.
            show(report, format)
            sys.stdout.flush()
            os._exit(report.code)
    return report


def _report(document: WorkerOutcome) -> Report:
    events = sorted(document["events"].items())
    blocks: list[Block] = [Rows(("event", "turns"), [(event, str(count)) for event, count in events])]
    if document["left"]:
        blocks.append(Line(f"{document['left']} turns were left; they are free when their leases end.", "yellow"))
    return Report(document, blocks if events else [Line("No turns.")], code=0 if document["ok"] else 1)


def _log_to(stream: TextIO, logger: str) -> None:
    """The worker's log on standard error, unless the entry's program has set up logging of its own."""
    formatter = logging.Formatter(_LINE)
    formatter.converter = time.gmtime  # many hosts, one clock
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
        logging.getLogger(logger).setLevel(logging.INFO)
        # What happens to the queue is told by the worker in its own words.
        handler.addFilter(lambda record: not record.name.startswith(("procrastinate", "psycopg")))
