"""Searches that outside agents drive: they ask for a task, write a candidate, and tell it.

Nothing here writes candidates or knows a model. An answer goes the way of every other candidate:
through the search's gate and judge into its memory file.
"""
