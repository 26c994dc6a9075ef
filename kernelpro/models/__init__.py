"""Models as proposers: roles, context windows, prompts, providers, budgets and tapes.

`workflow` is where a proposal is made; everything else is what it needs. Nothing here runs or
measures a candidate.
"""
