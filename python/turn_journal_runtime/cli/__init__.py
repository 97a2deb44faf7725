"""The `turn-journal` command. Its libraries are loaded when it runs, not when the package is imported."""

from __future__ import annotations


def main() -> None:
    """Runs the command line of this process; its exit codes are in docs/reference/command-line.md."""
    from .app import app

    app()
