"""The judge: decides in a process of its own whether a candidate is right, and how fast it is."""
