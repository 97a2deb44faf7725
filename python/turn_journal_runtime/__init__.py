"""Durable turns for AI agents."""
