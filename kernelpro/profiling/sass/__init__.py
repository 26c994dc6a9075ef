"""Facts of a GPU kernel's machine code (SASS): no GPU and no run is needed.

`facts.of_file` and `facts.of_listing` are the entries; `collect` finds a candidate's binaries.
"""
