"""Make the listings of this folder again: python tests/data/sass/make.py (needs nvcc, nvdisasm).

What the parser does not read is left out, so that the files stay small: runs of blanks, the lower
half of each encoding, repeated source lines, folders of paths. Tests that run nvdisasm parse its
whole output.
"""

import re
import subprocess
import tempfile
from pathlib import Path

from kernelpro.profiling.sass import tools

FOLDER = Path(__file__).parent
CHIPS = {"sm_90a": "compute_90a", "sm_80": "compute_80"}


def listing(chip: str, source: Path, *options: str) -> str:
    """Compile for a chip and disassemble with lines and encodings."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernels.cubin"
        target = f"arch={CHIPS[chip]},code={chip}"
        command = ["nvcc", "-O3", "-lineinfo", "-cubin", "-gencode", target, *options]
        subprocess.run([*command, str(source), "-o", str(cubin)], check=True)
        text = tools.run(tools.find("nvdisasm"), ["-c", "-g", "-hex", str(cubin)])
    return compact(text)


def compact(text: str) -> str:
    """Leave out what the parser does not read."""
    kept = []
    source = ""
    for line in text.splitlines():
        line = re.sub(r'"/[^"]*/', '"', re.sub(r"[ \t]+", " ", line)).strip()
        line = re.sub(r"(;) /\* 0x[0-9a-f]{16} \*/$", r"\1", line)  # the lower half of the encoding
        if line.startswith("//## File"):
            if line == source:
                continue
            source = line
        elif line.startswith(".section"):
            source = ""
        if line and (not line.startswith(".") or line.endswith(":") or ".target" in line):
            kept.append(line)
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    for chip in CHIPS:
        (FOLDER / f"kernels.{chip}.sass").write_text(listing(chip, FOLDER / "kernels.cu"))
