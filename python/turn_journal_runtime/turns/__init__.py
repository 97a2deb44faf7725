"""Turns: one goal's unit of work, driven through its phases and recovered wherever it was killed."""
