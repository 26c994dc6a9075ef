"""The kernel language: operator graph, schedule, and kernels that are written from the two."""
