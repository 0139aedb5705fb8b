"""Captured graphs as their owners have them: read, edited, run, saved. Start at nodes.py."""
