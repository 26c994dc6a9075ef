"""Compiles exemplars' CUDA text for the host (host_shim.h) and runs it on numpy arrays.

The index arithmetic, the layouts of tensor-core fragments and the order of barriers are those of
the kernel; what a GPU alone has (memory ordering, the compiler's code, speed) is not tested so.
"""

import ctypes
import re
import subprocess
from pathlib import Path

SHIM = Path(__file__).with_name("host_shim.h")
_FUNCTION = re.compile(
    r"(template <[^>]*> )?static __device__ __forceinline__ [\w ]+?\b(\w+)\([^{}]*?\) \{", re.S
)
_HEAD = re.compile(r"__global__ void(?:\s*__\w+__\([^)]*\))*\s*(\w+)\(([^{;]*?)\) \{", re.S)


def build(sources, folder):
    """Compile CUDA sources, by name, to one library with `run_KERNEL` for each kernel."""
    path = Path(folder, "kernels.cpp")
    text = [f'#include "{SHIM}"']
    for name, source in sources.items():
        text.append(f"namespace of_{name} {{\n{_host(source)}\n}}")
        text += [_runner(name, *found) for found in _HEAD.findall(source)]
    path.write_text("\n".join(text), encoding="utf-8")
    library = path.with_suffix(".so")
    command = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", str(path), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(library))


def launch(library, kernel, grid, block, *args, shared=0, together=1):
    """Run one kernel on numpy arrays, ints (as long long), floats (as float) and ctypes values.

    Args:
        shared: bytes of dynamic shared memory.
        together: blocks that run at the same time, as a cluster.
    """
    made = [
        a.ctypes.data_as(ctypes.c_void_p)
        if hasattr(a, "ctypes")
        else ctypes.c_longlong(a)
        if isinstance(a, int)
        else ctypes.c_float(a)
        if isinstance(a, float)
        else a
        for a in args
    ]
    sizes = (*(*grid, 1, 1)[:3], *(*block, 1)[:2], together, shared)
    getattr(library, f"run_{kernel}")(*sizes, *made)


def _host(source):
    text = _without_assembly(source).replace("alignas(64) ", "").replace("alignas(8) ", "")
    text = re.sub(r"static_assert\(.*?\);", "", text, flags=re.S)
    text = re.sub(
        r"extern __shared__ ([\w ]+?) (\w+)\[\];",
        r"\1* \2 = (\1*)dynamic_memory[now->blockno];",
        text,
    )
    # Shared variables are static, and an array over the blocks of a cluster.
    text = re.sub(
        r"__shared__ float of_warps\[(.*?)\], of_block;",
        r"static float all_warps[8][\1], all_blocks[8]; float* of_warps = all_warps[now->blockno];"
        r" float& of_block = all_blocks[now->blockno];",
        text,
    )
    return text.replace("__shared__ ", "static ")


def _without_assembly(source):
    """Functions made of PTX are left out (the shim has them), lone PTX statements do nothing."""
    out, place = [], 0
    for match in _FUNCTION.finditer(source):
        if match.start() < place:
            continue
        end, depth = match.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
        if "asm" in source[match.start() : end] or match[2] == "descriptor":
            out.append(source[place : match.start()])
            place = end
    return re.sub(r"asm volatile\(.*?\);", ";", "".join([*out, source[place:]]), flags=re.S)


def _runner(space, name, parameters):
    plain = re.sub(r"__\w+__", "", parameters)
    words = [word.strip() for word in plain.split(",")]
    own = [re.sub(r"\b(TensorMap|Groups)\b", rf"of_{space}::\1", word) for word in words]
    own = [re.sub(r"\bbf16\b", "unsigned short", word) for word in own]
    names = ", ".join(re.findall(r"\w+", word)[-1] for word in words)
    return (
        f'extern "C" void run_{name}(unsigned gx, unsigned gy, unsigned gz, unsigned bx, '
        f"unsigned by, int together, int bytes, {', '.join(own)}) {{\n"
        "  run({gx, gy, gz}, {bx, by, 1}, together, bytes, "
        f"[&] {{ of_{space}::{name}({names}); }});\n}}\n"
    )
