"""Energy of candidates: meters, recorded traces, windows, statistics and the protocol."""
