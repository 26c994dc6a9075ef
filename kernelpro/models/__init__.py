"""Models as proposers: roles, context windows, prompts, providers, budgets and tapes.

`workflow` holds the team that is asked, `turns` how a proposal comes about; all else is what
they need. Nothing here runs or
measures a candidate.
"""
