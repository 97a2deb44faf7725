"""The `turn-journal` command. Its libraries are loaded when it runs, not when the package is imported."""

from __future__ import annotations


def main() -> None:
    """Runs the command line of this process; its exit codes are in docs/reference/command-line.md."""
    import io
    import sys

    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks is shown as its number and stops nothing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        from .app import app

        app(prog_name="turn-journal")
    except KeyboardInterrupt:  # before a command has begun: from there on it is the command's
        sys.exit(130)
