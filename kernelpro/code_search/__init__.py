"""Search in a tree of CUDA C++ sources, such as a CUTLASS checkout, and read files of it.

Made for CUTLASS and CuTe, whose idioms no model knows by heart; works on any tree of sources.
"""
