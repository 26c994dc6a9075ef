"""Wrap a problem's kernels into a candidate: one Python file with `class ModelNew`.

The file holds the problem's own module with another forward, the kernels' source as a literal and,
on the CPU, the loader's text; it imports torch (and on the GPU cupy) and nothing of kernelpro.
"""

import ast
import keyword
import re
from collections.abc import Sequence
from pathlib import Path

from kernelpro import targets
from kernelpro.language import cuda_cutlass, cutlass_module, emit_cpp, emit_cuda, torch_text
from kernelpro.language.cutlass_tiles import through_cutlass
from kernelpro.language.graph import Graph, uses
from kernelpro.language.legal import OWN_SHARED_BYTES
from kernelpro.language.limits import PORTABLE_CLUSTER, SHARED_BYTES
from kernelpro.language.names import Names
from kernelpro.language.regions import Region, Stage
from kernelpro.language.schedule import CpuSchedule, CudaSchedule, Schedule
from kernelpro.language.tiles import CpuGemm, CpuTranspose, CudaGemm, CudaTranspose
from kernelpro.records import Problem

EXPECT = '''
def _expect(tensor, name, shape, dtype):
    """Return tensor, contiguous, or say what these kernels were made for."""
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device.type != "@DEVICE@":
        raise ValueError(
            f"these kernels were made for {name} of shape {shape}, {dtype}, on @DEVICE@, but it is "
            f"of shape {tuple(tensor.shape)}, {tensor.dtype}, on {tensor.device.type}; "
            "search again for that problem"
        )
    return tensor.contiguous()
'''

CPP_GLUE = """
_kernels = load_cpp(CPP_SOURCE, CPP_FLAGS)
"""

CUDA_MODULE = "_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)"

CUDA_GLUE = (
    f"""
{CUDA_MODULE}
"""
    + '''

class _Handle:
    """A stream of torch's, as the CUDA stream protocol wants it."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


@functools.lru_cache(maxsize=64)
def _external(handle):
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_Handle(handle))
    return cupy.cuda.ExternalStream(handle)  # CuPy before 14


def _stream(tensor):
    """Return torch's current stream for cupy; tensor must be on the current device."""
    if tensor.get_device() != torch.cuda.current_device():
        raise ValueError(
            f"the inputs are on cuda:{tensor.get_device()}, but the current device is "
            f"cuda:{torch.cuda.current_device()}; use torch.cuda.device"
        )
    return _external(torch.cuda.current_stream().cuda_stream)


@functools.lru_cache(maxsize=64)
def _blocks(device, pieces, per_multiprocessor):
    """Return the number of blocks: one for each piece, or so many that walk over all."""
    if per_multiprocessor == 0:
        return pieces
    count = torch.cuda.get_device_properties(device).multi_processor_count
    return min(pieces, per_multiprocessor * count)
'''
)

TEAMS_GLUE = '''

@functools.lru_cache(maxsize=64)
def _teams(device, pieces, per_multiprocessor, team):
    """Return the number of blocks that run at the same time: whole teams, one for each row."""
    blocks = _blocks(device, pieces, per_multiprocessor) // team * team
    if not blocks:
        raise ValueError(
            f"{team} blocks must run at the same time, but cuda:{device} has room for fewer"
        )
    return blocks
'''

ALLOW_GLUE = '''

@functools.lru_cache(maxsize=64)
def _allow(kernel, device, shared_bytes, cluster):
    """Let a kernel have on a device what not every kernel may: shared memory, a large cluster."""
    if shared_bytes:
        kernel.max_dynamic_shared_size_bytes = shared_bytes
    if cluster > @PORTABLE@:
        # 14 is CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        cupy.cuda.driver.funcSetAttribute(kernel.kernel.ptr, 14, 1)
    return kernel
'''

TENSOR_FORMATS = {"f16": 6, "bf16": 9, "tf32": 11}  # CUtensorMapDataType of cuda.h

MAPS_GLUE = '''

_driver = ctypes.CDLL("libcuda.so.1")


class _TensorMap:
    """Describes matrices in memory to the copy engine: 128 bytes that a launch copies."""

    def __init__(self, sizes, box, item_bytes, kind):
        self.sizes, self.box, self.item_bytes, self.kind = sizes, box, item_bytes, kind
        self.known = {}

    def at(self, address):
        """Return a pointer to the description of the matrices at an address."""
        if address not in self.known:
            if len(self.known) >= 64:
                self.known.clear()
            self.known[address] = self._made(address)
        return self.known[address][0]

    def _made(self, address):
        sizes, item_bytes = self.sizes, self.item_bytes
        space = ctypes.create_string_buffer(192)
        place = -(-ctypes.addressof(space) // 64) * 64
        failed = _driver.cuTensorMapEncodeTiled(
            ctypes.c_void_p(place),
            ctypes.c_int(self.kind),
            ctypes.c_uint32(3),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * 3)(*sizes),
            (ctypes.c_uint64 * 2)(sizes[0] * item_bytes, sizes[0] * sizes[1] * item_bytes),
            (ctypes.c_uint32 * 3)(*self.box, 1),
            (ctypes.c_uint32 * 3)(1, 1, 1),
            ctypes.c_int(0),  # not interleaved
            ctypes.c_int(3),  # chunks of 16 bytes exchanged within 128
            ctypes.c_int(2),  # the L2 cache fetches 128 bytes
            ctypes.c_int(0),  # what lies beyond is zeros
        )
        if failed:
            raise ValueError(
                "the copy engine takes matrices at multiples of 16 bytes, but found one at address "
                f"{address} (CUDA error {failed})"
            )
        return cupy.cuda.function.CPointer(place), space
'''

BEGIN = (
    "# The kernels as a program of kernelpro's kernel language, from which this file was written:"
)
END = "# (end of the program)"

DROPPED = frozenset({"get_inputs", "get_init_inputs", "SIZES", "ModelNew"})


def candidate_source(
    problem: Problem,
    graph: Graph,
    stages: Sequence[Stage],
    schedules: Sequence[Schedule],
    program: str,
) -> str:
    """Return the candidate's text.

    Args:
        problem: whose module is wrapped.
        graph: its operator graph.
        stages: the graph's regions and torch calls.
        schedules: how each region's kernel runs; legal for it.
        program: the program in the kernel language that all this comes from.
    """
    regions = [region for region in stages if isinstance(region, Region)]
    kernels = [
        (f"region{i}", region, schedule)
        for i, (region, schedule) in enumerate(zip(regions, schedules, strict=True))
    ]
    forward = _Forward(graph, stages, kernels, problem.target).lines()
    future, body = _problem_text(problem, forward)
    comment = f"Kernels for {problem.name}, written for one shape and one schedule."
    device = problem.target
    parts = [
        f'"""{problem.name}: {_summary(graph, stages)}\n\n'
        "Parameters and their initial values are the original module's. For inference: no\n"
        "gradient flows through the kernels. Other shapes than those it was made for raise\n"
        'ValueError.\n"""\n',
        f"{as_comment(program)}\n",
        *(f"{line}\n" for line in future),
    ]
    if problem.target == "cpu":
        source = emit_cpp.emit(graph, kernels, comment)  # type: ignore[arg-type]  # CpuSchedules
        parts += ["import torch\n\n", body]
        parts += [f'\n\nCPP_SOURCE = r"""\n{source}"""\n\nCPP_FLAGS = {emit_cpp.FLAGS!r}\n\n']
        loader = Path(targets.__path__[0], "cpp_loader.py").read_text(encoding="utf-8")
        parts += ["\n# --- loader ---\n", _as_comment(loader), "\n", CPP_GLUE]
        for name, region, _ in kernels:
            count = len(Names(graph, region).parameters)
            parts.append(f"_kernels.{name}.argtypes = [ctypes.c_void_p] * {count}\n")
            parts.append(f"_kernels.{name}.restype = None\n")
    else:
        parts += _cuda(graph, kernels, body, comment, allows="_allow(" in forward)
    parts.append("\n" + EXPECT.replace("@DEVICE@", device))
    return "".join(parts)


def _cuda(
    graph: Graph,
    kernels: Sequence[tuple[str, Region, Schedule]],
    body: str,
    comment: str,
    *,
    allows: bool,
) -> list[str]:
    """Return the candidate's text from its imports on: kernels of NVRTC's, then CUTLASS's."""
    through = [one for one in kernels if through_cutlass(one[2])]
    own = [one for one in kernels if not through_cutlass(one[2])]
    plain = own or not through  # torch alone needs the stream too
    maps = _maps(graph, own)
    sources = None
    if through:
        sources = cuda_cutlass.emit(graph, through, comment)  # type: ignore[arg-type]  # CudaGemms
    asks = sources is not None and "_workspace()" in sources.binding
    loads = {"import functools"} if plain or asks else set()
    loads |= {"import ctypes"} if maps else set()
    loads |= set(cutlass_module.IMPORTS) if through else set()
    parts = ["\n".join(sorted(loads)), "\n\n"]
    parts += ["import cupy\n"] if plain else []
    parts += ["import torch\n"]
    parts += ["from torch.utils.cpp_extension import load_inline\n"] if through else []
    parts += ["\n", body]
    if plain:
        source = emit_cuda.emit(graph, own, comment)  # type: ignore[arg-type]  # CudaSchedules
        options = emit_cuda.options(schedule for _, _, schedule in own)
        parts += [f'\n\nCUDA_SOURCE = r"""\n{source}"""\n\nCUDA_OPTIONS = {options!r}\n']
        parts.append(CUDA_GLUE)
        if maps:
            parts.append(MAPS_GLUE)
        if any(_together(schedule) for _, _, schedule in own):
            parts.append(TEAMS_GLUE)
        if allows:
            parts.append(ALLOW_GLUE.replace("@PORTABLE@", str(PORTABLE_CLUSTER)))
        for name, region, schedule in own:
            assert not isinstance(schedule, CpuSchedule | CpuGemm | CpuTranspose)
            names = [name]
            if not emit_cuda.has_one_kernel(schedule):
                names = [o.kernel for o in emit_cuda.launches(graph, region, schedule, name)]
            parts += [f'_{one} = _module.get_function("{one}")\n' for one in names]
        parts += maps
    if sources is not None:
        parts += [cutlass_module.literals(sources), cutlass_module.GLUE]
        parts += [cutlass_module.WORKSPACE_GLUE] if asks else []
        if not plain:
            parts.append(cutlass_module.STREAM_GLUE)
    return parts


def _together(schedule: Schedule) -> bool:
    """Whether a kernel's blocks all run at the same time."""
    return isinstance(schedule, CudaSchedule) and schedule.split > 1 and schedule.staging != "none"


def _maps(graph: Graph, kernels: Sequence[tuple[str, Region, Schedule]]) -> list[str]:
    """Return the lines that describe kernels' operands to the copy engine, where they use it."""
    found = []
    for name, region, schedule in kernels:
        if not isinstance(schedule, CudaGemm):
            continue
        for one in emit_cuda.launches(graph, region, schedule, name):
            found += [
                f"_{name}_{each.name} = _TensorMap({each.sizes}, {each.box}, {each.item_bytes}, "
                f"{TENSOR_FORMATS[each.format]})\n"
                for each in one.maps
            ]
    return found


def as_comment(program: str) -> str:
    """Return a program as the comment that a candidate carries it in."""
    return "\n".join([BEGIN, *(f"# {line}" for line in program.splitlines()), END])


def program_in(source: str) -> str | None:
    """Return the text of the program that a candidate carries, or None."""
    lines = source.splitlines()
    if BEGIN not in lines:
        return None
    lines = lines[lines.index(BEGIN) + 1 :]
    if END not in lines:
        return None
    return "".join(f"{line.removeprefix('# ')}\n" for line in lines[: lines.index(END)])


def _as_comment(loader: str) -> str:
    """Turn the loader's docstring into a comment: in this file it documents nothing."""
    tree = ast.parse(loader)
    lines = loader.splitlines()
    first = tree.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        said = str(first.value.value).strip().splitlines()
        lines[: first.end_lineno] = [f"# {line}".rstrip() for line in said]
    return "\n".join(lines) + "\n"


def _summary(graph: Graph, stages: Sequence[Stage]) -> str:
    words = []
    for stage in stages:
        if isinstance(stage, Region):
            words.append(f"one kernel for {len(stage.nodes)} operators")
        else:
            node = graph.nodes[stage.node]
            words.append((node.op or node.kind).split(".")[-2 if ".ops." in node.op else -1])
    return ", then ".join(words) + "."


# --- the problem's own module -----------------------------------------------------------------


def _problem_text(problem: Problem, forward: str) -> tuple[list[str], str]:
    """Return the file's `from __future__` lines, and the rest with forward replaced."""
    tree = ast.parse(problem.source)
    method = ast.parse(forward).body[0]
    kept: list[ast.stmt] = []
    future: list[str] = []
    for position, item in enumerate(tree.body):
        if isinstance(item, ast.ImportFrom) and item.module == "__future__":
            future.append(ast.unparse(item))
        elif (
            (isinstance(item, ast.FunctionDef) and item.name in DROPPED)
            or (isinstance(item, ast.If) and "__name__" in ast.unparse(item.test))
            or (isinstance(item, ast.Assign | ast.AnnAssign) and _assigned(item) & DROPPED)
        ):
            continue
        elif ast.unparse(item) == "import torch":
            continue  # the file begins with it
        elif position == 0 and isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
            continue
        else:
            if isinstance(item, ast.ClassDef) and item.name == "Model":
                item.body = [
                    b
                    for b in item.body
                    if not isinstance(b, ast.FunctionDef) or b.name != "forward"
                ]
                item.body.append(method)
            kept.append(item)
    _Rename().visit(tree)
    lines = [ast.unparse(item) for item in kept]
    if problem.sizes:
        lines.append("# sizes that were set for this target")
        lines += [f"{name} = {value}" for name, value in problem.sizes.items()]
    return future, "\n\n".join(lines) + "\n"


def _assigned(item: ast.Assign | ast.AnnAssign) -> set[str]:
    goals = item.targets if isinstance(item, ast.Assign) else [item.target]
    return {goal.id for goal in goals if isinstance(goal, ast.Name)}


class _Rename(ast.NodeTransformer):
    """Model becomes ModelNew, also where it names itself."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if node.name == "Model":
            node.name = "ModelNew"
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "Model":
            node.id = "ModelNew"
        return node


# --- forward ----------------------------------------------------------------------------------


class _Forward:
    def __init__(
        self,
        graph: Graph,
        stages: Sequence[Stage],
        kernels: Sequence[tuple[str, Region, Schedule]],
        target: str,
    ) -> None:
        self.graph, self.stages, self.target = graph, stages, target
        self.kernels = {id(region): (name, schedule) for name, region, schedule in kernels}
        self.names: dict[int, str] = {}
        self.taken = {name for name, _ in graph.arguments} | {"self", "torch", "device", "stream"}
        self.out: list[str] = []

    def lines(self) -> str:
        graph = self.graph
        needed = graph.needed()
        arguments = ", ".join(["self", *(name for name, _ in graph.arguments)])
        tensors = [(name, number) for name, number in graph.arguments if number is not None]
        for name, value in graph.constants:
            self.out.append(f"if {name} != {value!r}:")
            self.out.append(
                f'    raise ValueError(f"these kernels were made for {name} = {value!r}, '
                f'not {{{name}}}")'
            )
        for name, number in tensors:
            self.names[number] = name
            self._expect(name, name, number)
        if any("Device()" in repr((n.arguments, n.keywords)) for n in graph.nodes):
            self.out.append(f"device = {tensors[0][0]}.device")
        for node in graph.nodes:
            if node.kind == "parameter" and node.id in needed:
                self.names[node.id] = self._fresh(node.name)
                self._expect(self.names[node.id], _attribute(node.name), node.id)
        if self.target == "cuda":
            first = tensors[0][0] if tensors else next(iter(self.names.values()))
            self.out.append(f"stream = _stream({first})")
        last = self._last_readers()
        returned = {graph.base(use.node) for use in uses(graph.outputs)}
        for position, stage in enumerate(self.stages):
            if isinstance(stage, Region):
                self._launch(stage)
            else:
                node = graph.nodes[stage.node]
                expression = torch_text.expression(graph, node, self.names)
                self.names[node.id] = self._fresh(f"t{node.id}")
                self.out.append(f"{self.names[node.id]} = {expression}")
            done = [n for n in last.get(position, ()) if n not in returned]
            if done and position + 1 < len(self.stages):
                self.out.append(f"del {', '.join(dict.fromkeys(self.names[n] for n in done))}")
        self.out.append(f"return {self._outputs()}")
        body = "\n".join(f"    {line}" for line in self.out)
        return f"def forward({arguments}):\n{body}\n"

    def _expect(self, name: str, source: str, number: int) -> None:
        node = self.graph.nodes[number]
        self.out.append(
            f"{name} = _expect({source}, {node.name!r}, {node.shape}, torch.{node.dtype})"
        )

    def _fresh(self, wanted: str) -> str:
        name = re.sub(r"\W+", "_", wanted)
        while name in self.taken or keyword.iskeyword(name) or not name.isidentifier():
            name = f"p_{name}" if name[:1].isdigit() else f"{name}_"
        self.taken.add(name)
        return name

    def _last_readers(self) -> dict[int, list[int]]:
        """Nodes that each stage, by position, is the last to read."""
        graph = self.graph
        last: dict[int, int] = {}
        overwritten: set[int] = set()
        for position, stage in enumerate(self.stages):
            nodes = stage.nodes if isinstance(stage, Region) else (stage.node,)
            for node in nodes:
                for read in graph.nodes[node].reads:
                    last[graph.base(read)] = position
            if isinstance(stage, Region):
                overwritten |= {source for _, source in stage.in_place}
        result: dict[int, list[int]] = {}
        made = {n for s in self.stages for n in (s.outputs if isinstance(s, Region) else (s.node,))}
        for node, position in last.items():
            if node in made and node not in overwritten:
                result.setdefault(position, []).append(node)
        return result

    def _launch(self, region: Region) -> None:
        graph, (kernel, schedule) = self.graph, self.kernels[id(region)]
        in_place = dict(region.in_place)
        for number in region.reads:
            if not graph.nodes[number].contiguous:
                self.out.append(f"{self.names[number]} = {self.names[number]}.contiguous()")
        for output in region.outputs:
            node = graph.nodes[output]
            if output in in_place:
                source = in_place[output]
                name = self.names[source]
                if graph.nodes[source].shape != node.shape:
                    name = f"{name}.view({node.shape})"
                self.names[output] = self._fresh(f"v{output}")
                self.out.append(f"{self.names[output]} = {name}")
            else:
                self.names[output] = self._fresh(f"v{output}")
                like = self._like()
                self.out.append(
                    f"{self.names[output]} = torch.empty({node.shape}, dtype=torch.{node.dtype}"
                    f"{like})"
                )
        pointers = [
            f"{self.names[number]}.data_ptr()" for number in Names(graph, region).parameters
        ]
        listed = ", ".join(pointers)
        if self.target == "cpu":
            self.out.append(f"_kernels.{kernel}({listed})")
        else:
            assert not isinstance(schedule, CpuSchedule | CpuGemm | CpuTranspose)
            if isinstance(schedule, CudaGemm) and through_cutlass(schedule):
                self._start(region, schedule, kernel, pointers)
                return
            if not isinstance(schedule, CudaSchedule) or not emit_cuda.has_one_kernel(schedule):
                self._launch_several(region, schedule, kernel, pointers)
                return
            pieces, per = emit_cuda.grid(graph, region, schedule)
            device = f"{pointers[0].removesuffix('.data_ptr()')}.get_device()"
            blocks = f"_blocks({device}, {pieces}, {per})" if per else str(pieces)
            if per and schedule.cluster > 1:  # whole clusters
                blocks = f"{blocks} // {schedule.cluster} * {schedule.cluster}"
            tail = "," if len(pointers) == 1 else ""
            kept = emit_cuda.dynamic_bytes(graph, region, schedule)
            function, shared = f"_{kernel}", f", shared_mem={kept}" if kept else ""
            if kept or schedule.cluster > PORTABLE_CLUSTER:
                function = f"_allow({function}, {device}, {kept}, {schedule.cluster})"
            self.out.append(
                f"{function}(({blocks},), ({schedule.threads},), ({listed}{tail}){shared}, "
                "stream=stream)"
            )

    def _start(self, region: Region, schedule: CudaGemm, name: str, pointers: list[str]) -> None:
        """Start a kernel through CUTLASS, with memory for parts of tiles where it needs some."""
        given = list(pointers)
        if cuda_cutlass.CutlassKernel(self.graph, region, schedule, name).spread:
            memory = self._fresh(f"{name}_parts")
            device = f"{pointers[0].removesuffix('.data_ptr()')}.get_device()"
            self.out.append(
                f'{memory} = torch.empty(_workspace("{name}", {device}), dtype=torch.uint8'
                f"{self._like()})"
            )
            given.append(f"{memory}.data_ptr()")
        own = any(not through_cutlass(one) for _, one in self.kernels.values())
        given.append("stream.ptr" if own else "stream")
        self.out.append(f"_cutlass.{name}_start({', '.join(given)})")

    def _launch_several(
        self,
        region: Region,
        schedule: CudaSchedule | CudaGemm | CudaTranspose,
        name: str,
        pointers: list[str],
    ) -> None:
        """Start a region's kernels one after the other, with memory for what passes between."""
        memory = ""
        for one in emit_cuda.launches(self.graph, region, schedule, name):
            given = list(pointers)
            given += [
                f"_{name}_{each.name}.at({self.names[each.operand]}.data_ptr())"
                for each in one.maps
            ]
            function, blocks = f"_{one.kernel}", str(one.blocks)
            device = f"{pointers[0].removesuffix('.data_ptr()')}.get_device()"
            if one.per_multiprocessor:
                blocks = f"_blocks({device}, {one.blocks}, {one.per_multiprocessor})"
            size, made, together = f"{one.partial}", "empty", ""
            if one.team:
                blocks = self._fresh(f"{name}_blocks")
                self.out.append(
                    f"{blocks} = _teams({device}, {one.blocks}, {one.per_multiprocessor}, "
                    f"{one.team})"
                )
                size, made = f"{blocks} * {one.partial}", "zeros"
                together = ", enable_cooperative_groups=True"
            if one.partial:
                if not memory:
                    memory = self._fresh(f"{name}_parts")
                    self.out.append(
                        f"{memory} = torch.{made}({size}, dtype=torch.float32{self._like()})"
                    )
                given.append(f"{memory}.data_ptr()")
            tail = "," if len(given) == 1 else ""
            shared = f"shared_mem={one.shared_bytes}, " if one.shared_bytes else ""
            if one.shared_bytes > SHARED_BYTES - OWN_SHARED_BYTES:
                function = f"_allow({function}, {device}, {one.shared_bytes}, 1)"
            if one.team:
                function = f"{function}.kernel"  # CuPy's RawKernel says itself how it is launched
            self.out.append(
                f"{function}(({blocks},), ({one.threads},), ({', '.join(given)}{tail}), "
                f"{shared}stream=stream{together})"
            )

    def _like(self) -> str:
        if self.target == "cpu":
            return ""
        return ', device="cuda"'

    def _outputs(self) -> str:
        graph = self.graph

        names = dict(self.names)
        for use in uses(graph.outputs):
            base = graph.base(use.node)
            if graph.nodes[base].kind in ("input", "parameter") and not names[base].endswith(")"):
                names[base] += ".clone()"
        return torch_text.literal(graph, graph.outputs, names)


def _attribute(name: str) -> str:
    """Return the expression for a parameter by its qualified name."""
    expression = "self"
    for part in name.split("."):
        plain = part.isidentifier() and not keyword.iskeyword(part)
        expression = f"{expression}.{part}" if plain else f'getattr({expression}, "{part}")'
    return expression
