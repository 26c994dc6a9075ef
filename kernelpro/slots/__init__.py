"""Several judges at once: one slot a device, each with processes of its own, for one search."""
