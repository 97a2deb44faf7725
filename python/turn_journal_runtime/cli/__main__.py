"""`python -m turn_journal_runtime.cli`, where the command is not on PATH."""

from . import main

main()
