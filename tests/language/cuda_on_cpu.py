"""Run a candidate's CUDA source on the CPU, thread by thread: a real test of its indices."""

import ast
import ctypes
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch

from kernelpro.language import emit_cuda
from kernelpro.language.cuda_bulk import BULK
from kernelpro.language.cuda_kept_parts import TOLD
from kernelpro.language.cuda_tiles import Launch, TensorMap
from kernelpro.language.cuda_tiles_text import TENSOR
from kernelpro.language.cuda_wgmma import WGMMA
from kernelpro.language.graph import uses
from kernelpro.language.lower import lower
from kernelpro.language.names import Names
from kernelpro.language.program import Program
from kernelpro.language.schedule import CudaSchedule
from kernelpro.language.tiles import CudaGemm, CudaTranspose

HEADER = Path(__file__).with_name("cuda_on_cpu.h")
WARP_GROUPS = Path(__file__).with_name("wgmma_on_cpu.h")
WORDS = """
INLINE void tell(u64* word, float x, unsigned row) {
  __atomic_store_n(word, (u64)row << 32 | __float_as_uint(x), __ATOMIC_RELAXED);
}
INLINE u64 word_at(const u64* word) {
  sched_yield();
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
"""
ROWS = Path(__file__).with_name("bulk_on_cpu.h")
OPERANDS = {"bf16": "bf16", "f16": "f16", "tf32": "float"}
ELEMENTS = """
template <> float element<bf16>(const unsigned* words, int at) {
  return value(bf16{(unsigned short)(*words >> 16 * at)});
}
template <> float element<f16>(const unsigned* words, int at) {
  return value(f16{(unsigned short)(*words >> 16 * at)});
}
template <> float element<float>(const unsigned* words, int) { return __uint_as_float(*words); }
"""


def translated(source: str) -> str:
    """Replace what only a GPU understands: inline assembly, and dynamic shared memory."""
    source = source.replace(TENSOR.strip(), ELEMENTS)
    source = source.replace(WGMMA.strip(), WARP_GROUPS.read_text())
    source = source.replace(BULK.strip(), ROWS.read_text())
    begin, end = TOLD.index("INLINE void tell"), TOLD.index("// What the parts of a row")
    source = source.replace(TOLD[begin:end], WORDS)
    source = re.sub(
        r'(_multiply\(.*?\) \{)\n  asm volatile\("wgmma\.mma_async\.sync\.aligned\.m64n\d+k\d+'
        r'\.f32\.(\w+)\..*?, 1, 1, 1(?:, (\d), (\d))?;".*?\n\}',
        lambda m: f"{m[1]} emulated_wgmma<{OPERANDS[m[2]]}, {m[3] or 0}, {m[4] or 0}>(d, x, w); }}",
        source,
        flags=re.S,
    )
    source = re.sub(r'asm volatile\("(setmaxnreg|fence)\.[^;]*;.*?\);', "", source)
    source = re.sub(r"const __grid_constant__ TensorMap (\w+)", r"const TensorMap* \1_", source)
    source = re.sub(r"copy_box\((.*?), (left|right)_map,", r"copy_box(\1, *\2_map_,", source)
    source = re.sub(r"#if __CUDA_ARCH__.*?#else\n(.*?)#endif\n", r"\1", source, flags=re.S)
    source = re.sub(
        r'float y;\n  asm\("cvt.f32.f16.*?\n  return y;', "return from_half(x.bits);", source
    )
    source = re.sub(
        r'asm\("cvt.rn.f16.f32.*\);', "_Float16 z = (_Float16)x; memcpy(&y.bits, &z, 2);", source
    )
    source = re.sub(
        r"(void copy_async\(.*?\) \{).*?\n\}",
        r"\1 emulated_copy<BYTES>(to, from, wanted); }",
        source,
        flags=re.S,
    )
    source = re.sub(
        r"asm volatile\(\"cp.async.commit_group[^;]*;[^;]*;", "emulated_commit();", source
    )
    source = re.sub(
        r'asm volatile\("cp.async.wait_group.*?"memory"\);', "emulated_wait<PENDING>();", source
    )
    source = re.sub(
        r"extern __shared__ (__align__\(16\) )?float kept\[\];",
        "float* const kept = reinterpret_cast<float*>(shared_memory);",
        source,
    )
    source = re.sub(r"extern __shared__.*", "unsigned char* const shared = shared_memory;", source)
    source = re.sub(r"__shared__ __align__\((\d+)\)", r"alignas(\1) static", source)
    source = source.replace("#pragma unroll\n", "")
    assert "asm" not in source, source[source.index("asm") - 300 :][:600]
    return source


def cuda_source(candidate: str) -> str:
    """Return the literal CUDA_SOURCE of a candidate."""
    (found,) = (
        str(item.value.value)
        for item in ast.parse(candidate).body
        if isinstance(item, ast.Assign)
        and isinstance(item.targets[0], ast.Name)
        and item.targets[0].id == "CUDA_SOURCE"
        and isinstance(item.value, ast.Constant)
    )
    return found


def run(program: Program, tensors: list[torch.Tensor], folder: Path) -> torch.Tensor:
    """Run a program of one region on its inputs; returns its only output."""
    (result,) = outputs(program, tensors, folder)
    return result


def outputs(
    program: Program,
    tensors: list[torch.Tensor],
    folder: Path,
    parameters: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> list[torch.Tensor]:
    """Run a program of one region, which no cluster computes, on its inputs and parameters."""
    lowered = lower(program)
    (region,) = lowered.regions
    (schedule,) = lowered.schedules
    graph = lowered.graph
    assert isinstance(schedule, CudaSchedule | CudaGemm | CudaTranspose)
    text = translated(emit_cuda.emit(graph, [("region0", region, schedule)], "test"))
    if isinstance(schedule, CudaSchedule) and emit_cuda.has_one_kernel(schedule):
        pieces, per = emit_cuda.grid(graph, region, schedule)
        launches = [
            Launch(
                kernel="region0",
                blocks=pieces,
                per_multiprocessor=per,
                threads=schedule.threads,
            )
        ]
    else:
        launches = emit_cuda.launches(graph, region, schedule, "region0")
    wrappers = "".join(
        f'extern "C" int start_{one.kernel}(void** p) {{ return '
        f"call({'launch_together' if one.team else 'launch'}, {one.kernel}, p, {_blocks(one)}, "
        f"{one.threads}); }}\n"
        for one in launches
    )
    library = folder / f"emulated{abs(hash(text))}.so"
    if not library.exists():
        path = folder / "emulated.cpp"
        path.write_text(f'#include "{HEADER}"\n{text}\n{wrappers}')
        command = ["g++", "-std=c++17", "-O0", "-w", "-shared", "-fPIC", "-o", str(library)]
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:3000]
    given = dict(zip((number for _, number in graph.arguments), tensors, strict=True))
    for node in graph.nodes:
        if node.kind == "parameter":
            given[node.id] = parameters[node.name]
        if node.id in region.outputs:
            dtype = getattr(torch, node.dtype)
            given[node.id] = torch.full(node.shape, float("nan")).to(dtype)
    partial = torch.full((max(one.partial for one in launches),), float("nan"))
    if any(one.team for one in launches):  # blocks are processes, which share what they write
        partial = torch.zeros(max(_blocks(one) * one.partial for one in launches)).share_memory_()
        given = {number: tensor.clone().share_memory_() for number, tensor in given.items()}
    pointers = [given[number].data_ptr() for number in Names(graph, region).parameters]
    loaded = ctypes.CDLL(str(library))
    for one in launches:
        maps = [_Map.of(each, given[each.operand]) for each in one.maps]
        places = [*pointers, *map(ctypes.addressof, maps), partial.data_ptr()]
        array = (ctypes.c_void_p * len(places))(*places)
        failed = loaded[f"start_{one.kernel}"](array)
        assert not failed, f"{failed} blocks ended badly"
    found = [(use.node, given[graph.base(use.node)]) for use in uses(graph.outputs)]
    return [tensor.reshape(graph.nodes[number].shape) for number, tensor in found]


class _Map(ctypes.Structure):
    """The emulated copy engine's description of a tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.c_longlong * 3),
        ("box", ctypes.c_longlong * 2),
        ("item_bytes", ctypes.c_int),
        ("rounds", ctypes.c_int),
    )

    @classmethod
    def of(cls, told: TensorMap, tensor: torch.Tensor) -> "_Map":
        rounds = told.format == "tf32"
        return cls(tensor.data_ptr(), told.sizes, told.box, told.item_bytes, rounds)


def _blocks(one: Launch) -> int:
    """As many blocks as a card with three multiprocessors would be given; at most two teams."""
    if one.team:
        return min(one.blocks, 2 * one.team)
    return min(one.blocks, 3 * one.per_multiprocessor) if one.per_multiprocessor else one.blocks
