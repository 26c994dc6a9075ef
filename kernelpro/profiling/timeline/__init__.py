"""Timelines: what host and device did and when, from torch's profiler or Nsight Systems."""
