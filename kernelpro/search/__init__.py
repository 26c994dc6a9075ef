"""The tree search: choose, ask, judge, remember. Knows no device, no model, no plugin by name."""
