"""Facts about arithmetic: data path, slow functions, divisions, conversions, what surrounds it."""

from kernelpro.profiling.readings import ratio
from kernelpro.profiling.sass.code import Code, is_library
from kernelpro.profiling.sass.fact import counted, fact
from kernelpro.profiling.sass.instruction import (
    ADDRESSING,
    CONVERSIONS,
    DOUBLE,
    HALF,
    SINGLE,
    TENSOR,
    WGMMA,
    Instruction,
)
from kernelpro.records import Metric

_DIVIDE_64 = ("div_u64", "div_s64", "rem_u64", "rem_s64")


def facts(code: Code) -> dict[str, Metric]:
    """All facts of this module for one kernel."""
    hot = code.hot_instructions
    return {**_paths(code, hot), **_slow(code, hot), **_around(code, hot), **_half(hot)}


def is_double(found: Instruction) -> bool:
    """Whether it uses the double-precision unit or converts from or to double."""
    return (
        found.stem in DOUBLE
        or (found.stem in ("F2F", "I2F", "F2I") and "F64" in found.modifiers)
        or found.opcode.startswith(("MUFU.RCP64H", "MUFU.RSQ64H"))
    )


def _paths(code: Code, hot: list[Instruction]) -> dict[str, Metric]:
    """Which unit does the work."""
    double = code.places(is_double)
    tensor = [i for i in hot if i.stem in TENSOR]
    zero_waits = [
        i
        for i in code.looped(code.places(lambda i: i.opcode.startswith("WARPGROUP.DEPBAR")))
        if i.operands[-1:] == ("0x0",)
    ]
    return {
        "sass.math": fact(sum(i.is_math for i in hot), code.where),
        "sass.ffma": counted([i for i in hot if i.stem == "FFMA"]),
        "sass.tensor": counted(tensor),
        "sass.hmma": counted([i for i in tensor if i.stem not in WGMMA]),
        "sass.hgmma": counted([i for i in tensor if i.stem in WGMMA]),
        "sass.tensor_anywhere": counted([i for i in code.instructions if i.stem in TENSOR]),
        "sass.hgmma_anywhere": counted([i for i in code.instructions if i.stem in WGMMA]),
        "sass.wgmma_drained": counted(zero_waits),
        "sass.fp64": counted([i for _, i in double], code.hottest(double)),
        "sass.fp64_in_loop": counted(code.looped(double), code.hottest(double)),
        "sass.fp64_memory": counted(_double_memory(code)),
    }


def _double_memory(code: Code) -> list[Instruction]:
    """Loads and stores of double values: data of an instruction of the double-precision unit."""
    produced = {r for i in code.instructions if i.stem in DOUBLE for r in i.writes}
    consumed = {r for i in code.instructions if i.stem in DOUBLE for r in i.reads}
    return [
        i
        for i in code.instructions
        if (i.stem == "LDG" and i.width >= 8 and consumed & set(i.writes))
        or (i.stem == "STG" and i.width >= 8 and produced & set(i.reads[-1:]))
    ]


def _slow(code: Code, hot: list[Instruction]) -> dict[str, Metric]:
    """Special functions, their slow paths, and integer divisions."""
    divisions = [i for i in hot if i.stem == "I2F" and "RP" in i.modifiers]
    special = [i for i in hot if i.stem == "MUFU"]
    # Each 32-bit division takes a reciprocal of its own, which is no math function.
    functions = special[: max(0, len(special) - len(divisions))]
    work = sum(i.stem in SINGLE for i in hot)
    calls = [(i, name) for i in hot if i.stem == "CALL" and is_library(name := code.called(i))]
    wide = [i for i, name in calls if any(part in name for part in _DIVIDE_64)]
    paths = [i for i, name in calls if not any(part in name for part in _DIVIDE_64)]
    reductions = [code.instructions[p] for p in sorted(code.slow)]
    ends = [i for i in reductions if i.opcode.startswith("I2F.F64.S64")]
    return {
        "sass.mufu": counted(functions),
        "sass.mufu_per_ffma": fact(
            len(functions) / max(work, 1), functions[0].where if functions else ""
        ),
        "sass.slowpath_calls": counted(paths),
        "sass.range_reductions": counted(ends),
        "sass.int_divisions": counted(divisions),
        "sass.int_divisions_64": counted(wide),
    }


def _around(code: Code, hot: list[Instruction]) -> dict[str, Metric]:
    """What the hot loop does beside arithmetic: conversions, addresses, waits."""
    math = [i for i in hot if i.is_math]
    conversions = [
        i for i in hot if (i.stem in CONVERSIONS and "RP" not in i.modifiers) or i.stem == "PRMT"
    ]
    addressing = [i for i in hot if i.stem in ADDRESSING or i.moves_only]
    found = {
        "sass.hot_loop_instructions": fact(len(hot), code.where),
        "sass.math_share": fact(ratio(len(math), len(hot)), code.where),
        "sass.conversion_share": fact(
            ratio(len(conversions), len(hot)), conversions[0].where if conversions else ""
        ),
        "sass.address_per_math": fact(
            ratio(len(addressing), len(math)), addressing[0].where if addressing else ""
        ),
    }
    if all(i.control is not None for i in hot):
        stalls = sum(max(i.control.stall_cycles, 1) for i in hot if i.control)
        found["sass.stall_cycles"] = fact(stalls, code.where, "cycles")
    return found


def _half(hot: list[Instruction]) -> dict[str, Metric]:
    """Half-precision arithmetic on one value of a register that holds two."""
    packed = [i for i in hot if i.stem in HALF and not i.moves_only]
    scalar = [
        i
        for i in packed
        if any("H0_H0" in o or "H1_H1" in o for o in i.operands[1:])
        and all(
            "H0_H0" in o or "H1_H1" in o or not o.lstrip("-|").startswith("R") or "RZ" in o
            for o in i.operands[1:]
        )
    ]
    accesses = [i for i in hot if i.stem in ("LDG", "STG", "LDS", "STS") and i.width == 2]
    return {
        "sass.half_math": counted(packed),
        "sass.half_scalar": counted(scalar),
        "sass.half_scalar_share": fact(
            ratio(len(scalar), len(packed)), scalar[0].where if scalar else ""
        ),
        "sass.accesses_2_bytes": counted(accesses),
    }
