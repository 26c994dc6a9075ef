"""Profilers: where a kernel stands on the roofline, and the numbers that its detectors read."""
