"""Execution pipes of an NVIDIA multiprocessor: how busy each is, busiest first."""

from collections.abc import Mapping

from kernelpro.profiling.readings import first_reading

_ACTIVE = "sm__pipe_{}_cycles_active.avg.pct_of_peak_sustained_elapsed"
_EXECUTED = "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_elapsed"

ALU, FMA, FP64, TENSOR = (_ACTIVE.format(name) for name in ("alu", "fma", "fp64", "tensor"))
LSU, XU, ADU, CBU, UNIFORM = (
    _EXECUTED.format(name) for name in ("lsu", "xu", "adu", "cbu", "uniform")
)
# Hopper's own counter of its matrix unit. The general one also counts HFMA2.MMA, which compilers
# use to put constants into registers: that is no matrix work.
TENSOR_MMA = _ACTIVE.format("tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma")

# What each is called, by its metric.
PIPES = {
    ALU: "ALU (integer, logic, compares)",
    FMA: "FMA (float32, integer multiply)",
    FP64: "FP64",
    TENSOR: "tensor",
    LSU: "LSU (loads, stores, shuffles)",
    XU: "XU (special functions, conversions)",
    ADU: "ADU (address divergence, barriers)",
    CBU: "CBU (branches, convergence)",
    UNIFORM: "uniform datapath",
}


def busiest(profile: Mapping[str, float]) -> list[tuple[float, str]]:
    """Each pipe that was measured: percent of its peak, and its metric; the busiest first."""
    seen = ((first_reading(profile, metric), metric) for metric in PIPES)
    return sorted(((p, m) for p, m in seen if p is not None), reverse=True)


def matrix_percent(profile: Mapping[str, float]) -> float | None:
    """How busy the matrix units are with matrix work, in percent; None where not measured."""
    return first_reading(profile, TENSOR_MMA, TENSOR)
