"""Facts from the assembler's words (`ptxas -v` and its warnings), for each kernel.

Reads what nvcc prints and what NVRTC puts into its log. Names are `compiler.*`.
"""

import re
from collections.abc import Mapping

from kernelpro.profiling.sass.fact import fact
from kernelpro.records import Metric

_FUNCTION = re.compile(r"Compiling entry function '([^']+)'|Function properties for (\S+)")
_NUMBERS = {
    "compiler.registers": (re.compile(r"Used (\d+) registers"), ""),
    "compiler.barriers": (re.compile(r"used (\d+) barriers"), ""),
    "compiler.shared_bytes": (re.compile(r"(\d+) bytes smem"), "bytes"),
    "compiler.stack_bytes": (re.compile(r"(\d+) bytes stack frame"), "bytes"),
    "compiler.spill_store_bytes": (re.compile(r"(\d+) bytes spill stores"), "bytes"),
    "compiler.spill_load_bytes": (re.compile(r"(\d+) bytes spill loads"), "bytes"),
}
_ABOUT = re.compile(r"(?:in|for)(?: the)? function '([^']+)'")
_CODE = re.compile(r"\(C(75\d\d)\)\s*(.*)")
_SERIALISED = range(7510, 7514)  # the instructions are serialised, with the reason
_INJECTED = range(7514, 7520)  # a fence or a wait was put in to keep them in order
_DOUBLE = re.compile(r"line \d+.*double", re.I)

EVERY = ""  # key of what the log says of no kernel in particular


def facts(log: str) -> Mapping[str, Mapping[str, Metric]]:
    """Metrics of each kernel by its symbol; under the empty name those of no named kernel."""
    found: dict[str, dict[str, Metric]] = {}
    current = EVERY
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            current = match[1] or match[2]
            found.setdefault(current, {})
            continue
        about = _ABOUT.search(line)
        kernel = about[1] if about else current
        here = found.setdefault(kernel, {})
        if match := _CODE.search(line):
            _add(here, _warning(int(match[1])), match[2].strip())
        elif _DOUBLE.search(line) and "warning" in line:
            _add(here, "compiler.double_precision", line.strip())
        else:
            for name, (pattern, unit) in _NUMBERS.items():
                if match := pattern.search(line):
                    here[name] = fact(float(match[1]), "ptxas -v", unit)
    return {name: values for name, values in found.items() if values}


def of_kernel(all_facts: Mapping[str, Mapping[str, Metric]], symbol: str) -> dict[str, Metric]:
    """What the log says of one kernel, and of none in particular."""
    return {**all_facts.get(EVERY, {}), **all_facts.get(symbol, {})}


def _warning(code: int) -> str:
    if code in _SERIALISED:
        return "compiler.wgmma_serialised"
    return "compiler.wgmma_injected" if code in _INJECTED else "compiler.performance_warnings"


def _add(found: dict[str, Metric], name: str, words: str) -> None:
    """Count one more of a kind of warning; the note keeps the first one's words."""
    before = found.get(name)
    count = (before.value or 0.0) if before else 0.0
    found[name] = fact(count + 1, before.note if before else words)
