"""What questions over many turns cost, and what they need of memory."""
