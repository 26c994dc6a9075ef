"""Recorded spaces: every schedule of a problem measured once, and searches compared on them."""
