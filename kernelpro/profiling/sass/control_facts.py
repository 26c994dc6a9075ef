"""Facts about control: barriers, divergence, fences, calls, and the size of the code."""

from kernelpro.profiling.readings import ratio
from kernelpro.profiling.sass.code import Code, is_library
from kernelpro.profiling.sass.fact import counted, fact
from kernelpro.profiling.sass.instruction import Instruction
from kernelpro.profiling.sass.listing import INSTRUCTION_BYTES
from kernelpro.records import Metric

_FLOW = ("BRA", "EXIT", "RET", "BREAK", "CALL", "BRX")


def facts(code: Code) -> dict[str, Metric]:
    """All facts of this module for one kernel."""
    return {**_barriers(code), **_divergence(code), **_fences(code), **_calls(code), **_size(code)}


def _is_barrier(found: Instruction) -> bool:
    return found.stem == "BAR" and ("SYNC" in found.modifiers or "RED" in found.modifiers)


def _barriers(code: Code) -> dict[str, Metric]:
    """Block barriers, and how much arithmetic lies between two of them in a loop."""
    everywhere = [i for i in code.instructions if _is_barrier(i)]
    most: list[Instruction] = []
    least = float("inf")
    where = ""
    for loop in code.loops_with(_is_barrier):
        body = [code.instructions[p] for p in loop.places if p not in code.slow]
        barriers = [i for i in body if _is_barrier(i)]
        math = sum(1 for i in body if i.is_math)
        if len(barriers) > len(most):
            most = barriers
        if math / len(barriers) < least:
            least, where = math / len(barriers), barriers[0].where
    found = {
        "sass.barriers": counted(everywhere),
        "sass.barriers_per_iteration": counted(most),
        "sass.shuffles": counted([i for i in code.instructions if i.stem in ("SHFL", "REDUX")]),
    }
    if most:
        found["sass.math_per_barrier"] = fact(least, where)
    elif everywhere:
        math = sum(i.is_math for i in code.instructions)
        found["sass.math_per_barrier"] = fact(math / len(everywhere), everywhere[0].where)
    return found


def _divergence(code: Code) -> dict[str, Metric]:
    """Regions of the hot loop that reconverge, and instructions under a predicate."""
    hot = code.hot_instructions
    position = {i.address: p for p, i in enumerate(code.instructions)}
    regions = []
    for place in code.hot:
        found = code.instructions[place]
        if found.stem != "BSSY":
            continue
        end = min((position.get(t, place) for t in found.targets), default=place)
        only_slow_path = any(p in code.slow for p in range(place, end)) or any(
            i.stem == "CALL" and is_library(code.called(i)) for i in code.instructions[place:end]
        )
        if not only_slow_path:
            regions.append(found)
    guarded = [i for i in hot if i.conditional and i.stem not in _FLOW]
    return {
        "sass.divergent_regions": counted(regions),
        "sass.predicated_share": fact(
            ratio(len(guarded), len(hot)), guarded[0].where if guarded else ""
        ),
        "sass.indirect_branches": counted([i for i in hot if i.stem in ("BRX", "JMX")]),
    }


def _fences(code: Code) -> dict[str, Metric]:
    """Memory fences wider than a block."""

    def wide(found: Instruction) -> bool:
        return found.stem == "MEMBAR" and bool({"GPU", "SYS", "VC"} & set(found.modifiers))

    places = code.places(wide)
    return {
        "sass.fences": counted([i for _, i in places]),
        "sass.fences_in_loop": counted(code.looped(places)),
        "sass.cache_invalidations_in_loop": counted(
            code.looped(code.places(lambda i: i.opcode.startswith("CCTL.IVALL")))
        ),
    }


def _calls(code: Code) -> dict[str, Metric]:
    """Calls of functions that were not inlined, other than the compiler's own."""
    own = code.places(lambda i: i.stem == "CALL" and not is_library(code.called(i)))
    return {
        "sass.calls": counted([i for _, i in own]),
        "sass.calls_in_loop": counted(code.looped(own)),
    }


def _size(code: Code) -> dict[str, Metric]:
    return {
        "sass.instructions": fact(len(code.instructions)),
        "sass.code_bytes": fact(code.function.code_bytes, unit="bytes"),
        "sass.hot_loop_bytes": fact(
            len(code.loop.places) * INSTRUCTION_BYTES if code.loop else 0, code.where, "bytes"
        ),
        "sass.loops": fact(len(code.flow.loops), code.where),
        "sass.loop_depth": fact(max(code.flow.depths, default=0), code.where),
    }
