"""Products through CUTLASS on a GPU, against float64. All candidates are compiled side by side."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from benchmarks import gemm
from kernelpro import problems
from kernelpro.language.parse import parse
from kernelpro.language.writer import write_program
from tests.language.test_cutlass import headers

ROOT = Path(__file__).resolve().parents[2]
GROUPS = "instruction='cutlass', "
STAGED = "instruction='cutlass', scheduler='multistage', swizzle=1, warps_m=2, "

CASES = (
    gemm.Case(
        name="cooperative",
        m=300,
        n=515,
        k=200,
        dtype="bfloat16",
        knobs=GROUPS + "tile_n=256, tile_k=64, cluster_m=2",
    ),
    gemm.Case(
        name="pingpong_tn",
        m=200,
        n=264,
        k=72,
        batch=3,
        dtype="float16",
        layout="TN",
        after="residual",
        knobs=GROUPS + "scheduler='pingpong', tile_m=64, tile_k=64, cluster_n=2, stages=5",
    ),
    gemm.Case(
        name="pingpong_corner",
        m=520,
        n=264,
        k=200,
        dtype="bfloat16",
        layout="TT",
        after="none",
        knobs=GROUPS + "scheduler='pingpong', tile_m=64, tile_n=32, tile_k=32, cluster_n=4, "
        "cluster_m=2, swizzle=1",
    ),
    gemm.Case(
        name="split_nn",
        m=264,
        n=392,
        k=4096,
        dtype="bfloat16",
        layout="NN",
        after="bias",
        knobs=GROUPS + "tile_m=256, tile_n=64, tile_k=64, split_k=4",
    ),
    gemm.Case(
        name="stream_k",
        m=2056,
        n=1544,
        k=1024,
        dtype="float16",
        after="residual",
        knobs=GROUPS + "scheduler='stream_k', tile_k=64, stages=5, cluster_m=2",
    ),
    gemm.Case(
        name="stream_k_deep",
        m=136,
        n=74,
        k=8192,
        dtype="float16",
        layout="TT",
        after="gelu",
        knobs=GROUPS + "scheduler='stream_k', tile_n=64, tile_k=64",
    ),
    gemm.Case(
        name="tf32",
        m=136,
        n=76,
        k=100,
        precision="tf32",
        knobs=GROUPS + "math='tf32', tile_n=64, tile_k=32",
    ),
    *(
        gemm.Case(
            name=f"tf32_{layout.lower()}",
            m=136,
            n=264,
            k=104,
            precision="tf32",
            layout=layout,
            knobs=GROUPS + "math='tf32', tile_k=32" + more,
        )
        for layout, more in (
            ("NN", ", scheduler='pingpong', cluster_m=2"),
            ("TT", ", cluster_n=2"),
            ("TN", ", tile_n=64, stages=5"),
        )
    ),
    gemm.Case(
        name="staged", m=200, n=261, k=72, dtype="bfloat16", knobs=STAGED + "tile_k=32, stages=4"
    ),
    gemm.Case(
        name="staged_tn",
        m=200,
        n=264,
        k=136,
        batch=2,
        dtype="float16",
        layout="TN",
        after="residual",
        knobs=STAGED + "tile_m=64, tile_k=64",
    ),
    gemm.Case(
        name="staged_nn",
        m=104,
        n=136,
        k=200,
        dtype="bfloat16",
        layout="NN",
        after="bias",
        knobs=STAGED + "tile_n=32, tile_k=32, warps_n=1",
    ),
)

HEADER = "import torch\n\n\nclass Model(torch.nn.Module):\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A problem and a program for it."""

    name: str
    module: str
    program: str
    floor: float = gemm.FLOOR["float16"]


WHOLE = (
    Whole(
        name="one_for_the_batch",
        module=HEADER + "    def forward(self, x, w):\n"
        "        return torch.relu(x.transpose(1, 2) @ w)\n\n\n"
        "def get_inputs():\n"
        "    return [torch.randn(3, 72, 136).half() / 8, torch.randn(72, 264).half()]\n",
        program="@cuda\ndef case(x: float16[3, 72, 136], w: float16[72, 264]):\n"
        "    with gemm(3, 136, 264, 72, tile_k=64, instruction='cutlass'):\n"
        "        h = matmul(transpose(x), w)\n        y = relu(h)\n    return y\n",
    ),
    Whole(
        name="two_results_then_rows",
        module=HEADER + "    def forward(self, x, w, s):\n"
        "        h = x @ w.T\n"
        "        return torch.softmax(torch.relu(h) * s, -1), torch.sigmoid(h)\n\n\n"
        "def get_inputs():\n"
        "    return [torch.randn(264, 512).half() / 22, torch.randn(136, 512).half(),\n"
        "            torch.rand(264, 1).half() / 8]\n",  # flat rows: y is rounded to float16
        program="@cuda\n"
        "def case(x: float16[264, 512], w: float16[136, 512], s: float16[264, 1]):\n"
        "    with gemm(264, 136, 512, tile_k=64, instruction='cutlass', scheduler='stream_k'):\n"
        "        h = matmul(x, transpose(w))\n"
        "        y = relu(h) * s\n"
        "        z = sigmoid(h)\n"
        "    with rowwise(264, 136, threads=128):\n"
        "        e = exp(y - amax(y))\n"
        "        p = e / sum(e)\n"
        "    return p, z\n",
    ),
)

BUILD = """
import sys
import torch
from benchmarks.gemm import loaded
from kernelpro.judge import light_build
from pathlib import Path

light = light_build.install() if sys.argv[2] == "light" else None
path = Path(sys.argv[1])
loaded(path.read_text(), path)
print(light.records[-1] if light else "built by torch")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Every candidate, compiled; the folder of builds is in the environment meanwhile."""
    if headers() is None or shutil.which("nvcc", path=_path()) is None:
        pytest.skip(
            "needs nvcc (CUDA_HOME, or on PATH) and CUTLASS's headers: pip install nvidia-cutlass, "
            "or set CUTLASS_PATH"
        )
    folder = tmp_path_factory.mktemp("cutlass")
    found = {}
    for case in CASES:
        if "multistage" not in case.knobs and torch.cuda.get_device_capability() != (9, 0):
            continue
        problem = gemm.problem_of(case, "cuda", folder)
        program = parse(gemm.program_text(case, "cuda", case.knobs))
        found[case.name] = _written(folder, case.name, write_program(problem, program))
    for whole in WHOLE if torch.cuda.get_device_capability() == (9, 0) else ():
        path = folder / f"{whole.name}_problem.py"
        path.write_text(whole.module)
        problem = problems.load(str(path), target="cuda")
        found[whole.name] = _written(
            folder, whole.name, write_program(problem, parse(whole.program))
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder / "extensions"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("CUTLASS_PATH", str(headers().parent))
        major, minor = torch.cuda.get_device_capability()
        patch.setenv("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}{'a' if major >= 9 else ''}")
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) * 3 // 4)) as pool:
            list(pool.map(lambda path: _compiled(path, "light"), found.values()))
        yield found


def _path() -> str:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return os.pathsep.join([f"{home}/bin", os.environ.get("PATH", "")])


def _written(folder: Path, name: str, source: str) -> Path:
    path = folder / f"{name}_candidate.py"
    path.write_text(source)
    return path


def _compiled(path: Path, how: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(path), how],
        capture_output=True,
        text=True,
        check=False,
        cwd=path.parent,
    )
    assert done.returncode == 0, f"{path.name}: {done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's load_inline replaced for a test: what was compiled before is found."""
    import torch.utils.cpp_extension as extension

    from kernelpro.judge.light_build import LightBuild

    monkeypatch.setattr(extension, "load_inline", extension.load_inline)
    monkeypatch.setattr(extension, "load", extension.load)
    LightBuild(extension).install()


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_product_through_cutlass_is_computed_right(case, built, light, tmp_path):
    if case.name not in built:
        pytest.skip("warp groups need compute capability 9.0; run `pytest -m gpu` on such a GPU")
    candidate = gemm.loaded(built[case.name].read_text(), tmp_path / "candidate.py").ModelNew()
    module = gemm.loaded(gemm.module_text(case), tmp_path / "module.py")
    torch.manual_seed(3)
    inputs = [tensor.cuda() for tensor in module.get_inputs()]
    with torch.no_grad():
        wanted = module.Model()(*(tensor.double() for tensor in inputs))
        for _ in range(3):  # workspaces are cleared, and multiprocessors share alike each time
            error = gemm.largest(candidate(*inputs), wanted)
            assert error <= (1e-2 if case.precision != "strict" else gemm.FLOOR[case.dtype])


@pytest.mark.gpu
@pytest.mark.parametrize("whole", WHOLE, ids=lambda whole: whole.name)
def test_what_surrounds_the_product_is_right_too(whole, built, light, tmp_path):
    if whole.name not in built:
        pytest.skip("warp groups need compute capability 9.0; run `pytest -m gpu` on such a GPU")
    if "rowwise" in whole.program and importlib.util.find_spec("cupy") is None:
        pytest.skip("the kernel after the product needs CuPy; pip install cupy-cuda13x")
    candidate = gemm.loaded(built[whole.name].read_text(), tmp_path / "candidate.py").ModelNew()
    module = gemm.loaded(whole.module, tmp_path / "module.py")
    torch.manual_seed(3)
    inputs = [tensor.cuda() for tensor in module.get_inputs()]
    with torch.no_grad():
        wanted = module.Model()(*(tensor.double() for tensor in inputs))
        got = candidate(*inputs)
    pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
    for one, other in pairs:
        assert one.dtype == torch.float16
        assert gemm.largest(one, other) <= whole.floor


@pytest.mark.gpu
def test_a_candidate_is_built_by_torchs_own_load_inline_too(built):
    pytest.importorskip("ninja", reason="torch's load_inline needs ninja; pip install ninja")
    assert "built by torch" in _compiled(built["staged"], "torch")


@pytest.mark.gpu
def test_operands_that_do_not_begin_at_16_bytes_are_refused(built, light, tmp_path):
    case = next(case for case in CASES if case.name == "staged")
    candidate = gemm.loaded(built[case.name].read_text(), tmp_path / "candidate.py").ModelNew()
    module = gemm.loaded(gemm.module_text(case), tmp_path / "module.py")
    x, *others = (tensor.cuda() for tensor in module.get_inputs())
    shifted = torch.empty(x.numel() + 1, dtype=x.dtype, device="cuda")[1:].view(x.shape)
    shifted.copy_(x)
    with pytest.raises(ValueError, match="multiples of 16 bytes"):
        candidate(shifted, *others)
