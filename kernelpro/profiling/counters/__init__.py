"""Counters of an NVIDIA GPU: in the process (CUPTI), by an ncu process, and from its reports."""
