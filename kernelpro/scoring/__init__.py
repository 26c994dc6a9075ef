"""How good a run over many problems is: `statistics` counts, `run` says what of, `kernelbench`
reads and writes KernelBench's files, `score` joins them."""
