"""The scheduling fields that the compiler writes into each 128-bit instruction (sm_70 to sm_90).

Layout after Jia et al., "Dissecting the NVIDIA Volta GPU architecture via microbenchmarking"
(2018); Blackwell's is not verified.
"""

from dataclasses import dataclass

_NONE = 7  # the encoding of "sets no barrier"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlWord:
    """What the scheduler is told about one instruction.

    Attributes:
        stall_cycles: cycles before this warp's next instruction may be issued, 0..15.
        yield_bit: the raw hint for switching to another warp.
        write_barrier: scoreboard that is released when the result is written, 0..5 or None.
        read_barrier: scoreboard that is released when the operands were read, 0..5 or None.
        wait_mask: bit n is set when the instruction first waits for scoreboard n.
        reuse_mask: operand slots whose register stays in the operand cache.
    """

    stall_cycles: int
    yield_bit: int
    write_barrier: int | None
    read_barrier: int | None
    wait_mask: int
    reuse_mask: int


def decode(high: int) -> ControlWord:
    """Read the fields from the upper 64 bits of an instruction."""
    fields = (high >> 41) & 0x1FFFFF
    write, read = (fields >> 5) & 7, (fields >> 8) & 7
    return ControlWord(
        stall_cycles=fields & 15,
        yield_bit=(fields >> 4) & 1,
        write_barrier=None if write == _NONE else write,
        read_barrier=None if read == _NONE else read,
        wait_mask=(fields >> 11) & 63,
        reuse_mask=(fields >> 17) & 15,
    )
