"""The `turn-journal` command. Its libraries are loaded when it runs, not when the package is imported."""

from __future__ import annotations


def main() -> None:
    """Runs the command line of this process; its exit codes are in docs/reference/command-line.md."""
    import io
    import sys

    from .app import app

    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks is shown as its number and stops nothing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="turn-journal")
