"""CPU target: machine code, counters and the host's facts of one candidate."""
