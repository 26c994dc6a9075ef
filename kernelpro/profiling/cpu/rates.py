"""How many cycles an iteration of the hot loop takes, by llvm-mca, by osaca or by our own model.

All three model a core; none measures. llvm-mca and osaca know the processor's ports; our own model
(`loops.Loop.cycles`) is that of a generic wide core.
"""

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass

from kernelpro.profiling.cpu import host
from kernelpro.profiling.cpu.loops import FP_LATENCY, Loop
from kernelpro.profiling.remote import absent
from kernelpro.records import Metric

PREFIX = "cpu.rate."
NAMES = tuple(PREFIX + n for n in ("cycles", "throughput_cycles", "chain_cycles", "port_share"))

LLVM_MCA_LIMIT_S = 5.0
OSACA_LIMIT_S = 60.0  # its first run on a core takes some 20 s, later ones a few
ITERATIONS = 100
LONGEST = 400  # instructions; a longer body takes llvm-mca more than a tenth of a second

# Vendor, family, first and last model, osaca's name. From the vendors' tables of processor models.
CORES = (
    ("AuthenticAMD", 23, 0x00, 0x2F, "ZEN1"),
    ("AuthenticAMD", 23, 0x30, 0xFF, "ZEN2"),
    ("AuthenticAMD", 25, 0x00, 0x0F, "ZEN3"),
    ("AuthenticAMD", 25, 0x20, 0x5F, "ZEN3"),
    ("AuthenticAMD", 25, 0x10, 0x1F, "ZEN4"),
    ("AuthenticAMD", 25, 0x60, 0xAF, "ZEN4"),
    ("GenuineIntel", 6, 60, 60, "HSW"),
    ("GenuineIntel", 6, 63, 63, "HSW"),
    ("GenuineIntel", 6, 61, 61, "BDW"),
    ("GenuineIntel", 6, 79, 79, "BDW"),
    ("GenuineIntel", 6, 85, 85, "SKX"),
    ("GenuineIntel", 6, 106, 108, "ICX"),
    ("GenuineIntel", 6, 125, 126, "ICL"),
    ("GenuineIntel", 6, 143, 143, "SPR"),
    ("GenuineIntel", 6, 207, 207, "SPR"),
)

# Words of objdump that an assembler does not take: symbols after an address, unknown sizes.
_SYMBOL = re.compile(r"\s*<[^>]*>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Cycles of one iteration.

    Attributes:
        cycles: with everything that limits it.
        throughput_cycles: if nothing waited for a result.
        chain_cycles: the chain of results that an iteration hands to the next; 0 when not told.
        port: the busiest execution port or unit, or empty when not told.
        port_share: share of the cycles, 0..1, in which it is busy.
        tool: what computed it, with its version.
    """

    cycles: float
    throughput_cycles: float
    chain_cycles: float = 0.0
    port: str = ""
    port_share: float = 0.0
    tool: str


def metrics(loop: Loop | None, *, slow: bool = False) -> dict[str, Metric]:
    """The loop's rates under NAMES, each noting the tool, the loop and the busiest port.

    Args:
        loop: the loop, or None when the library has none.
        slow: osaca may be asked too, which takes seconds.
    """
    if loop is None:
        why = "no loop of the library does floating-point work"
        return absent(NAMES, why)
    found, why = rates(loop, slow=slow)
    note = f"{found.tool}: {loop.where}" + (f"; {why}" if why else "")
    values = {
        "cycles": found.cycles,
        "throughput_cycles": found.throughput_cycles,
        "chain_cycles": found.chain_cycles,
    }
    answer = {
        PREFIX + name: Metric(value=value, unit="cycles", how="static", note=note)
        for name, value in values.items()
    }
    answer[PREFIX + "port_share"] = (
        Metric(value=found.port_share, how="static", note=f"{found.port}; {note}")
        if found.port
        else Metric(value=None, how="absent", note=why or "the model knows no ports")
    )
    return answer


def rates(loop: Loop, *, slow: bool = False) -> tuple[Rates, str]:
    """The loop's rates by the best tool that is there, and why a better one was not used."""
    text = assembly(loop)
    why = []
    if loop.calls or loop.vector_calls:
        why.append("a loop that calls functions cannot be modelled by ports")
    elif len(loop.body) > LONGEST:
        why.append(f"the loop is longer than {LONGEST} instructions")
    else:
        for model in (llvm_mca, osaca) if slow else (llvm_mca,):
            found = model(text)
            if isinstance(found, Rates):
                return found, ""
            why.append(found)
    own = Rates(
        cycles=loop.cycles,
        throughput_cycles=loop.throughput_cycles,
        chain_cycles=float(loop.chain * FP_LATENCY),
        tool="own model of a wide core",
    )
    return own, ", ".join(why)


def assembly(loop: Loop) -> str:
    """The loop as text that an assembler takes, in Intel syntax; jumps go to its start."""
    lines = [".intel_syntax noprefix", "kernel_loop:"]
    for i in loop.body:
        if i.mnemonic in ("nop", "endbr64") or i.mnemonic.startswith("nop"):
            continue
        if i.mnemonic.startswith("j"):
            lines.append(f"{i.mnemonic} kernel_loop")
            continue
        operands = ",".join(_SYMBOL.sub("", operand) for operand in i.operands)
        lines.append(f"{'lock ' if i.locked else ''}{i.mnemonic} {operands}".rstrip())
    return "\n".join(lines) + "\n"


@functools.lru_cache(maxsize=64)
def llvm_mca(text: str) -> Rates | str:
    """Run llvm-mca on a loop's text; a sentence when it cannot be had."""
    tool = shutil.which("llvm-mca")
    if tool is None:
        return "llvm-mca is not installed (package llvm)"
    command = [tool, "-mcpu=native", f"-iterations={ITERATIONS}", "-instruction-info=0"]
    output = _run(command, text, LLVM_MCA_LIMIT_S)
    return output if output.startswith("llvm-mca ") else read_llvm_mca(output)


def read_llvm_mca(output: str) -> Rates | str:
    """Read llvm-mca's summary and its table of pressure by resource."""
    summary = {
        name: float(value)
        for name, value in re.findall(r"^([A-Z][\w /]+):\s+([\d.]+)$", output, re.MULTILINE)
    }
    try:
        cycles = summary["Total Cycles"] / summary["Iterations"]
        throughput = summary["Block RThroughput"]
    except (KeyError, ZeroDivisionError):
        return "llvm-mca printed no summary"
    port, busy = _busiest(output)
    return Rates(
        cycles=cycles,
        throughput_cycles=throughput,
        port=port,
        port_share=min(busy / cycles, 1.0) if cycles else 0.0,
        tool="llvm-mca",
    )


def _busiest(output: str) -> tuple[str, float]:
    """The resource with the most cycles in an iteration, by llvm-mca's two tables."""
    names = dict(re.findall(r"^\[([\d.]+)\]\s+- (\S+)$", output, re.MULTILINE))
    table = re.search(r"^Resource pressure per iteration:\n(.*)\n(.*)$", output, re.MULTILINE)
    if not table:
        return "", 0.0
    columns, cells = re.findall(r"\[([\d.]+)\]", table[1]), table[2].split()
    pressure = {
        names.get(column, column): float(cell)
        for column, cell in zip(columns, cells, strict=False)
        if cell != "-"
    }
    return max(pressure.items(), key=lambda pair: pair[1], default=("", 0.0))


@functools.lru_cache(maxsize=64)
def osaca(text: str) -> Rates | str:
    """Run osaca on a loop's text; a sentence when it cannot be had. Takes seconds."""
    tool = shutil.which("osaca")
    if tool is None:
        return "osaca is not installed (pip install osaca)"
    core = core_name()
    if not core:
        return "osaca knows no core like this machine's"
    body = text.partition("\n")[2]  # less .intel_syntax, which it does not know
    command = [tool, "--arch", core, "--syntax", "Intel", "--ignore-unknown", "/dev/stdin"]
    output = _run(command, body, OSACA_LIMIT_S)
    return output if output.startswith("osaca ") else read_osaca(output)


def read_osaca(output: str) -> Rates | str:
    """Read the sums below osaca's table: pressure by port, then critical path and carried chain."""
    lines = output.splitlines()
    header = next((line for line in lines if line.rstrip().endswith("|  CP  | LCD  |")), "")
    labels = [(m.start(), m.end(), m[0]) for m in re.finditer(r"[\dDV]+", header.split("||")[0])]
    sums = next((ln for ln in lines if re.fullmatch(r" +[\d.]+( +[\d.]+){2,} *", ln)), "")
    numbers = [(m.start(), m.end(), float(m[0])) for m in re.finditer(r"[\d.]+", sums)]
    if not labels or len(numbers) < 3:
        return "osaca printed no table"
    chain = numbers[-1][2]
    first, last, busiest = max(numbers[:-2], key=lambda n: n[2])
    port = min(labels, key=lambda label: abs(label[0] + label[1] - first - last))[2]
    cycles = max(busiest, chain)
    return Rates(
        cycles=cycles,
        throughput_cycles=busiest,
        chain_cycles=chain,
        port=f"port {port}",
        port_share=busiest / cycles if cycles else 0.0,
        tool="osaca",
    )


def core_name(cpuinfo: str | None = None) -> str:
    """osaca's name of this machine's core, or empty: by vendor, family and model."""
    facts: dict[str, str] = {}
    for line in (host.processors() if cpuinfo is None else cpuinfo).splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    try:
        family, model = int(facts["cpu family"]), int(facts["model"])
    except (KeyError, ValueError):
        return ""
    vendor = facts.get("vendor_id", "")
    for known, in_family, first, last, name in CORES:
        if vendor == known and family == in_family and first <= model <= last:
            return name
    return ""


def _run(command: list[str], text: str, limit_s: float) -> str:
    """What a tool printed, or a sentence that begins with its name."""
    name = command[0].rpartition("/")[2]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, errors="replace", timeout=limit_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{name} did not finish: {error}"
    if done.returncode:
        first = (done.stderr.strip() or "no message").splitlines()[0]
        return f"{name} failed: {first}"
    return done.stdout
