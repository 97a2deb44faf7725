"""What a write costs, what questions over many turns cost, and what they need of memory."""
