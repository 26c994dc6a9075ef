"""What Inductor chose, read from what it compiled: C++ here, Triton from its autotuners."""

import shutil
import types
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
import torch

from kernelpro.judge import inductor
from kernelpro.records import CompiledKernel
from kernelpro.serial import decode

Heuristic = Enum("Heuristic", ["PERSISTENT_REDUCTION", "POINTWISE", "REDUCTION", "TEMPLATE"])


@dataclass
class Config:
    kwargs: dict[str, int]
    num_warps: int = 4
    num_stages: int = 1


@dataclass
class Launcher:
    config: Config


@dataclass
class Kernel:
    """What a `triton.jit` function says of itself."""

    __name__: str
    src: str = ""


@dataclass
class CachingAutotuner:
    """What is read of Inductor's class of that name, as it is after a first call."""

    fn: Kernel
    configs: list[Config] | None
    size_hints: dict[str, int] | None
    heuristic_type: Heuristic = Heuristic.PERSISTENT_REDUCTION
    launchers: list[Launcher] = field(default_factory=list)
    autotune_time_taken_ns: int = 0
    inductor_meta: dict[str, str] = field(default_factory=dict)


def ran(name, sizes, heuristic, config, *others, src=""):
    timed_ns = 1_000_000 if others else 0
    return CachingAutotuner(
        Kernel(name, src),
        None,
        sizes,
        heuristic,
        [Launcher(config)],
        autotune_time_taken_ns=timed_ns,
    )


def read(autotuner):
    return decode(CompiledKernel, inductor.triton_kernel(autotuner))


def test_operators_are_told_apart_where_their_names_have_the_sign_that_joins_them():
    names = "triton_per_fused__softmax_add_native_layer_norm_0"
    assert inductor.operators(names) == ("_softmax", "add", "native_layer_norm")
    assert inductor.operators("cpp_fused_relu_12") == ("relu",)
    assert inductor.operators("triton_poi_fused_add_my_own_3") == ("add", "my_own")
    assert inductor.operators("triton_tem_0") == ()


def test_a_persistent_reduction_has_its_whole_row_as_a_block_and_says_its_own_sizes():
    src = "def k(x):\n    xnumel = 2000\n    r0_numel = 1000\n"
    kernel = read(
        ran(
            "triton_per_fused__softmax_0",
            {"x": 2048, "r0_": 1024},
            Heuristic.PERSISTENT_REDUCTION,
            Config({"XBLOCK": 8}, num_warps=8),
            src=src,
        )
    )
    assert kernel == CompiledKernel(
        name="triton_per_fused__softmax_0",
        kind="persistent reduction",
        operators=("_softmax",),
        sizes={"x": 2000, "r0_": 1000},
        choices={"XBLOCK": 8, "R0_BLOCK": 1024, "num_warps": 8, "num_stages": 1},
    )


def test_of_several_configurations_the_one_that_won_counts_and_hints_stand_for_sizes():
    won, lost = Config({"XBLOCK": 1, "R0_BLOCK": 2048}, 16), Config({"XBLOCK": 4, "R0_BLOCK": 64})
    kernel = read(
        ran(
            "triton_red_fused_sum_1",
            {"x": 64, "r0_": 32768},
            Heuristic.REDUCTION,
            won,
            lost,
            src="online_softmax_combine",
        )
    )
    assert (kernel.kind, kernel.tuned, kernel.sizes["r0_"]) == ("looped reduction", True, 32768)
    assert kernel.choices["R0_BLOCK"] == 2048
    assert kernel.choices["num_warps"] == 16
    assert kernel.choices["online"] == 1


def test_a_row_that_blocks_share_is_a_split_reduction_in_one_kernel_or_in_two():
    alone = read(
        ran(
            "triton_red_fused_sum_0",
            {"x": 1, "r0_": 1 << 20},
            Heuristic.REDUCTION,
            Config({"R0_BLOCK": 2048, "RSPLIT": 64}),
        )
    )
    assert (alone.kind, alone.choices["RSPLIT"], alone.choices["XBLOCK"]) == (
        "split reduction",
        64,
        1,
    )

    def kernel(kind, operators, x, r):
        sizes = {"x": x, "r0_": r}
        return {"kind": kind, "operators": operators, "sizes": sizes, "choices": {}}

    first = kernel("looped reduction", ["sum"], 4 * 128, 8192)
    between = kernel("pointwise", ["relu"], 77, 1)
    second = kernel("persistent reduction", ["sum"], 4, 128)
    assert [k["kind"] for k in inductor.with_splits([first, between, second])] == [
        "split reduction",
        "pointwise",
        "persistent reduction",
    ]
    assert inductor.with_splits([first, second])[0]["choices"] == {"parts": 128}
    other = kernel("persistent reduction", ["amax"], 4, 128)
    assert inductor.with_splits([first, other])[0]["kind"] == "looped reduction"
    short = kernel("persistent reduction", ["sum"], 4, 64)
    assert inductor.with_splits([first, short])[0]["kind"] == "looped reduction"


def test_a_kernel_that_cannot_be_read_is_noted_and_hides_no_other(tmp_path):
    config = Config({"XBLOCK": 1024})
    good = ran("triton_poi_fused_relu_0", {"x": 4096}, Heuristic.POINTWISE, config)
    untuned = CachingAutotuner(
        Kernel("triton_poi_fused_add_1"), [config, Config({})], {"x": 8}, Heuristic.POINTWISE
    )
    unsized = ran("triton_for_fused_2", None, Heuristic.TEMPLATE, config)
    module = types.ModuleType("written")
    module.__dict__.update(a=good, again=good, b=untuned, c=unsized)
    file = tmp_path / "written.py"
    file.write_text("x = 1\n")
    module.__file__ = str(file)
    kernels, notes = inductor._kernels([module])
    assert [each["name"] for each in kernels] == ["triton_poi_fused_relu_0"]
    assert len(notes) == 2
    assert "one launcher expected, but found 0 of 2 configurations" in notes[0]
    assert "triton_for_fused_2 cannot be read" in notes[1]


def test_another_torch_that_has_nothing_where_this_one_has_it_is_a_note(monkeypatch):
    from torch._inductor.codecache import PyCodeCache

    monkeypatch.delattr(PyCodeCache, "modules")
    told = inductor.chosen()
    assert told["kernels"] == []
    assert "cannot be read: AttributeError" in told["note"]


def test_the_autotuners_of_the_installed_torch_are_read_as_these_are(tmp_path):
    pytest.importorskip("triton", reason="pip install triton: it needs no GPU to make autotuners")
    from torch._inductor.runtime import hints, triton_heuristics

    text = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def triton_per_fused__softmax_0(in_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr):\n"
        "    xnumel = 2000\n    r0_numel = 1000\n"
    )
    file = tmp_path / "kernel.py"
    file.write_text(text)
    names: dict[str, Any] = {"__name__": "kernel", "__file__": str(file)}
    exec(compile(text, str(file), "exec"), names)
    device = hints.DeviceProperties(
        type="cuda",
        index=0,
        multi_processor_count=132,
        cc=90,
        major=9,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
    )
    made = triton_heuristics.persistent_reduction(
        size_hints={"x": 2048, "r0_": 1024},
        reduction_hint=hints.ReductionHint.INNER,
        filename=str(file),
        triton_meta={"signature": {}, "device": device, "constants": {}, "configs": []},
        inductor_meta={"num_load": 1, "num_reduction": 2, "autotune_local_cache": False},
    )(names["triton_per_fused__softmax_0"])
    assert inductor._is_autotuner(made)
    kernel = read(made)
    assert kernel.kind == "persistent reduction"
    assert kernel.sizes == {"x": 2000, "r0_": 1000}
    assert kernel.choices["XBLOCK"] >= 1
    assert kernel.choices["R0_BLOCK"] == 1024
    assert kernel.choices["num_warps"] >= 1


# --- C++, compiled for real ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compile a function for an input and return what is told of it."""
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("there is neither g++ nor clang++ on PATH (apt install g++)")
    from torch._inductor import config
    from torch._inductor.codecache import PyCodeCache

    def compile_one(function, *inputs):
        torch._dynamo.reset()
        PyCodeCache.modules.clear()
        with config.patch(compile_threads=1), torch.no_grad():
            torch.compile(function, dynamic=False)(*inputs)
        return inductor.chosen()

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield compile_one
    torch._dynamo.reset()
    PyCodeCache.modules.clear()


def one(told):
    assert told["note"] == ""
    (kernel,) = told["kernels"]
    return decode(CompiledKernel, kernel)


def lanes():
    return torch._inductor.cpu_vec_isa.pick_vec_isa().nelements()


pytest_ignores = pytest.mark.filterwarnings("ignore")  # torch's own, of its own parts


@pytest_ignores
def test_a_softmax_in_cpp_is_one_kernel_in_vectors_on_all_threads(compiled):
    kernel = one(compiled(lambda x: torch.softmax(x * 2.0, -1), torch.randn(600, 1000)))
    assert kernel.kind == "looped reduction"
    assert {"_softmax", "mul"} <= set(kernel.operators)
    assert list(kernel.sizes.values()) == [600, 1000]
    assert kernel.choices["lanes"] == lanes()
    assert kernel.choices["threads"] == torch.get_num_threads()
    assert kernel.choices["nests"] >= 2
    assert kernel.choices["buffer"] == 1


@pytest_ignores
def test_few_elements_are_one_thread_s_and_elements_apart_are_pointwise(compiled):
    kernel = one(compiled(lambda x: torch.relu(x) + 1.0, torch.randn(7, 9)))
    assert (kernel.kind, kernel.operators) == ("pointwise", ("add", "relu"))
    assert kernel.sizes == {"x0": 63}
    assert kernel.choices["threads"] == 1


@pytest_ignores
def test_strided_rows_lie_around_the_loop_that_reduces_them(compiled):
    kernel = one(compiled(lambda x: x.sum(0), torch.randn(4096, 256)))
    assert (kernel.kind, kernel.operators) == ("looped reduction", ("sum",))
    assert list(kernel.sizes.values()) == [256, 4096]
    assert "buffer" not in kernel.choices


@pytest_ignores
def test_a_product_alone_is_no_kernel_of_inductor_s(compiled):
    told = compiled(lambda x: x @ x, torch.randn(64, 64))
    assert told == {"kernels": [], "note": "Inductor wrote no kernel of its own"}
