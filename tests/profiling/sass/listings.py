"""The listings of tests/data/sass, read once, and kernels compiled on the spot."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from kernelpro.profiling.sass import code, facts, listing, tools
from kernelpro.profiling.sass.disassembly import Disassembled
from kernelpro.profiling.sass.errors import SassError

DATA = Path(__file__).parents[2] / "data" / "sass"
CHIPS = ("sm_80", "sm_90a")


def _missing() -> str:
    if not shutil.which("nvcc"):
        return "nvcc is not on PATH; it comes with the CUDA toolkit and needs no GPU"
    try:
        tools.find("nvdisasm")
    except SassError as error:
        return str(error)
    return ""


needs_compiler = pytest.mark.skipif(bool(_missing()), reason=_missing() or "never")


@cache
def text(chip):
    return (DATA / f"kernels.{chip}.sass").read_text()


@cache
def functions(chip):
    return {f.name: f for f in listing.parse(text(chip))}


@cache
def kernel(chip, name):
    (found,) = facts.kernels([Disassembled(function=functions(chip)[name])])
    return found


def value(chip, name, fact):
    return kernel(chip, name).metrics[f"sass.{fact}"].value


@cache
def read(chip, name):
    return code.read(functions(chip)[name])


def compiled(folder, source, *options, chip="sm_90a"):
    """A cubin of CUDA C++ text, and the compiler's words."""
    file, cubin = folder / "kernel.cu", folder / "kernel.cubin"
    file.write_text(source)
    arch = f"arch=compute_{chip.removeprefix('sm_')},code={chip}"
    command = ["nvcc", "-cubin", "-gencode", arch, *options, str(file), "-o", str(cubin)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return cubin, done.stdout + done.stderr
