"""How often a kernel executed an instruction: by counters, or by opcode in a recorded report.

Counters count threads, opcodes count warps, so counts of one answer may only be compared with each
other.
"""

from collections.abc import Mapping

from kernelpro.profiling.readings import first_reading

_COUNTED = "sm__sass_thread_inst_executed_op_{}_pred_on.sum"
_OPCODE = "source.opcode.{}"

# Opcodes of a kind of instruction, for reports that count by opcode.
_OPCODES = {
    **{op: (op.upper(), f"{op.upper()}32I") for op in ("fadd", "fmul", "ffma")},
    **{op: (op.upper(),) for op in ("dadd", "dmul", "dfma")},
    "fp32": ("FADD", "FFMA", "FMNMX", "FMUL", "FSEL", "FSETP", "MUFU"),
    "integer": ("IADD3", "IMAD", "IMNMX", "ISETP", "LEA", "LOP3", "SHF"),
    "conversion": ("F2F", "F2FP", "F2I", "F2IP", "FRND", "I2F", "I2FP", "I2I", "I2IP"),
}
ANY_OPCODE = "EXIT"  # every kernel executes it: without it, nothing was counted by opcode
THREADS, WARPS = TOTALS = ("smsp__sass_thread_inst_executed.sum", "smsp__inst_executed.sum")


def counters(*kinds: str) -> tuple[str, ...]:
    """Names of all metrics that `executed` and `share` read for these kinds."""
    codes = [code for kind in kinds for code in _OPCODES.get(kind, ())]
    return (
        *(_COUNTED.format(kind) for kind in kinds),
        *(_OPCODE.format(code) for code in dict.fromkeys((*codes, ANY_OPCODE))),
        *TOTALS,
    )


def executed(profile: Mapping[str, float], *kinds: str) -> tuple[float, ...] | None:
    """Count of each kind (`ffma`, `dadd`, `conversion`, ...), all in one unit.

    None where not all were counted. An opcode that a report does not list was not executed.
    """
    values = [first_reading(profile, name) for name in map(_COUNTED.format, kinds)]
    if all(value is not None for value in values):
        return tuple(value or 0.0 for value in values)
    return _by_opcode(profile, kinds) if _has_opcodes(profile) else None


def share(profile: Mapping[str, float], kind: str) -> float | None:
    """Share, 0..1, of all executed instructions that are of a kind; None where not known."""
    part, whole = first_reading(profile, _COUNTED.format(kind)), first_reading(profile, THREADS)
    if part is None or not whole:
        whole = first_reading(profile, WARPS)
        part = sum(_by_opcode(profile, (kind,))) if _has_opcodes(profile) else None
    if part is None or whole is None or not whole > 0:
        return None
    return min(part / whole, 1.0)


def _has_opcodes(profile: Mapping[str, float]) -> bool:
    return first_reading(profile, _OPCODE.format(ANY_OPCODE)) is not None


def _by_opcode(profile: Mapping[str, float], kinds: tuple[str, ...]) -> tuple[float, ...]:
    return tuple(
        sum(first_reading(profile, _OPCODE.format(code)) or 0.0 for code in _OPCODES.get(kind, ()))
        for kind in kinds
    )
