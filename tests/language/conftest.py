import ast
import importlib.util
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kernelpro import problems
from kernelpro.language.schedule import Schedule
from kernelpro.language.writer import write
from kernelpro.problems.module import instantiate
from kernelpro.records import Problem

Run = Callable[..., tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]]

HEADER = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for candidates and their builds; the loader's cache is inside."""
    path = tmp_path_factory.mktemp("language")
    before = os.environ.get("KERNELPRO_CPP_CACHE")
    os.environ["KERNELPRO_CPP_CACHE"] = str(path / "cpp")
    yield path
    if before is None:
        del os.environ["KERNELPRO_CPP_CACHE"]
    else:
        os.environ["KERNELPRO_CPP_CACHE"] = before


@pytest.fixture(scope="session")
def needs_compiler() -> None:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("there is neither g++ nor clang++ on PATH (apt install g++)")


@pytest.fixture(scope="session")
def make_problem(folder: Path) -> Callable[..., Problem]:
    """Make a problem from forward's body, its inputs and the module's constructor."""
    count = itertools.count()

    def make(forward: str, inputs: str, init: str = "", *, target: str = "cpu") -> Problem:
        names = ", ".join(f"x{i}" for i in range(inputs.count(";") + 1))
        text = (
            f"{HEADER}\n\nclass Model(nn.Module):\n    def __init__(self):\n"
            f"        super().__init__()\n"
            + "".join(f"        {line}\n" for line in init.splitlines())
            + f"\n    def forward(self, {names}):\n"
            + "".join(f"        {line}\n" for line in forward.splitlines())
            + f"\n\ndef get_inputs():\n    return [{inputs.replace(';', ',')}]\n"
        )
        path = folder / f"problem{next(count)}.py"
        path.write_text(text)
        return problems.load(str(path), target=target)

    return make


@pytest.fixture(scope="session")
def load_candidate(folder: Path) -> Callable[[str], ModuleType]:
    """Import a candidate's source as its own process would."""
    count = itertools.count()

    def load(source: str) -> ModuleType:
        path = folder / f"candidate{next(count)}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def run(needs_compiler: None, load_candidate: Callable[[str], ModuleType]) -> Run:
    """Run a schedule's candidate: its outputs, the float64 reference's, and eager's."""

    def run_one(
        problem: Problem, schedule: Schedule, inputs: list[Any] | None = None
    ) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        module = load_candidate(write(problem, schedule))
        reference = instantiate(problem)
        eager = reference.model(3)
        arguments, named = reference.init_arguments()
        torch.manual_seed(3)
        candidate = module.ModelNew(*arguments, **named)
        inputs = reference.inputs(5) if inputs is None else inputs
        wide = [
            v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
            for v in inputs
        ]
        with torch.no_grad():
            got = _flat(candidate(*[v.clone() if torch.is_tensor(v) else v for v in inputs]))
            return got, _flat(reference.model(3).double()(*wide)), _flat(eager(*inputs))

    return run_one


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return list(value.values()) if isinstance(value, dict) else list(value)


@pytest.fixture(scope="session")
def check_cubin(folder: Path) -> Callable[[str], str]:
    """Compile a candidate's CUDA source for an H100 and return what ptxas says."""
    if shutil.which("nvcc") is None:
        pytest.skip(
            "no nvcc on PATH: install the CUDA toolkit, it needs no GPU, and run `make test`"
        )

    def check(source: str) -> str:
        (text,) = (
            str(item.value.value)
            for item in ast.parse(source).body
            if isinstance(item, ast.Assign)
            and isinstance(item.targets[0], ast.Name)
            and item.targets[0].id == "CUDA_SOURCE"
            and isinstance(item.value, ast.Constant)
        )
        path = folder / "kernel.cu"
        path.write_text(text)
        command = ["nvcc", "-cubin", "-arch=sm_90", "-std=c++17", "-Xptxas", "-v"]
        done = subprocess.run(
            [*command, "-o", str(folder / "kernel.cubin"), str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    return check
