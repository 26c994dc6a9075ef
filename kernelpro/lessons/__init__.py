"""Lessons across problems: what earlier searches saw of strategies, kept in one SQLite file.

`tries` reads a search's steps, `store` keeps them, `features` says how alike two problems are,
`recall` sums up what is known for a problem, and `session` joins them to one search.
"""
