"""From a kernel's machine code to named metrics: what `sass.*` names mean is in the *_facts files.

`of_file` reads a cubin, a shared object or a listing; `of_listing` reads text. Both give one
`Kernel` for each kernel, with share 0: machine code does not tell what runs how long.
"""

from collections.abc import Iterable
from pathlib import Path

from kernelpro.profiling.names import short
from kernelpro.profiling.sass import (
    arithmetic_facts,
    code,
    control_facts,
    demangle,
    disassembly,
    listing,
    memory_facts,
    ptxas_log,
    resource_facts,
)
from kernelpro.profiling.sass.disassembly import Disassembled
from kernelpro.records import Kernel, Metric


def of_file(path: Path) -> tuple[Kernel, ...]:
    """The kernels of a .cubin, .so or listing with their static metrics.

    Raises:
        SassError: the file cannot be read or disassembled; one sentence says what to do.
    """
    return kernels(disassembly.of_file(path))


def of_listing(text: str, name: str = "the listing") -> tuple[Kernel, ...]:
    """The kernels of a listing: text of `nvdisasm -c -g -hex` or of `cuobjdump -sass`.

    Raises:
        SassError: there is no instruction in it.
    """
    return kernels(Disassembled(function=f) for f in listing.parse(text, name) if f.entry)


def kernels(found: Iterable[Disassembled], log: str = "") -> tuple[Kernel, ...]:
    """Name and measure kernels; a log of the assembler adds `compiler.*` to those it names."""
    found = tuple(found)
    names = demangle.demangled([kernel.function.name for kernel in found])
    words = ptxas_log.facts(log)
    return tuple(
        Kernel(
            name=short(name),
            share=0.0,
            metrics=metrics(kernel) | ptxas_log.of_kernel(words, kernel.function.name),
        )
        for name, kernel in zip(names, found, strict=True)
    )


def metrics(kernel: Disassembled) -> dict[str, Metric]:
    """All static metrics of one kernel; each note says where the first instance is."""
    read = code.read(kernel.function, kernel.resources)
    return {
        **control_facts.facts(read),
        **arithmetic_facts.facts(read),
        **memory_facts.facts(read),
        **resource_facts.facts(read),
        **(resource_facts.of_build(kernel.build) if kernel.build else {}),
    }
