"""Every bundled problem loads for both targets and runs on the CPU."""

import math

import pytest
import torch

from kernelpro import problems
from kernelpro.problems.module import instantiate

NAMES = problems.bundled()


def megabytes(specs):
    return sum(math.prod(s.shape) * getattr(torch, s.dtype).itemsize for s in specs) / 1e6


def test_there_are_at_least_nine_problems():
    assert len(NAMES) >= 9


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_and_runs_on_the_cpu(name):
    problem = problems.load(name)
    assert problem.origin == "bundled"
    assert problem.flops > 0
    assert "not counted" not in problem.flops_note
    assert problem.operators
    whole = megabytes(problem.inputs + problem.outputs + problem.parameters) * 1e6
    assert problem.min_bytes == pytest.approx(whole, rel=0.01)
    module = instantiate(problem)
    outputs = module.call(module.model(3), module.inputs(3))
    assert [tuple(o.shape) for o in outputs] == [s.shape for s in problem.outputs]
    assert all(torch.isfinite(o).all() for o in outputs)


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_at_a_gpus_size_without_its_data(name):
    small, large = problems.load(name), problems.load(name, target="cuda")
    assert set(large.sizes) <= set(instantiate(small).namespace)
    assert large.flops > small.flops
    assert 40 < megabytes(large.inputs + large.outputs) < 700
    assert [s.dtype for s in large.outputs] == [s.dtype for s in small.outputs]


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_says_what_it_is(name):
    source = problems.load(name).source
    assert source.startswith('"""')
    assert "def get_init_inputs" in source
