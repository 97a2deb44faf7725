"""`python -m turn_journal_runtime`: the command `turn-journal`, where its folder is not on PATH."""

from .cli import main

if __name__ == "__main__":
    main()
