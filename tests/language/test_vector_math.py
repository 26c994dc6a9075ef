"""The vector functions against float64, over the whole range of float32."""

import ctypes
import math

import numpy as np
import pytest
import torch

from kernelpro.language.vector_math import FUNCTIONS, INCLUDES, PREAMBLE
from kernelpro.targets.cpp_loader import load_cpp

FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
)

# name, float64 reference, largest relative error in units of 2^-24
CASES = [
    ("exponential", torch.exp, 4),
    ("exponential_minus_one", torch.expm1, 6),
    ("logarithm", torch.log, 5),
    ("logarithm_plus_one", torch.log1p, 6),
    ("hyperbolic_tangent", torch.tanh, 8),
    ("error_function", torch.erf, 8),
    ("logistic", torch.sigmoid, 6),
    ("square_root", torch.sqrt, 2),
    ("absolute", torch.abs, 0),
    ("relu", torch.relu, 0),
]


@pytest.fixture(scope="module", params=[4, 8, 16])
def library(request, folder, needs_compiler):
    text = INCLUDES + PREAMBLE.replace("@W@", str(request.param))
    text += 'extern "C" int lanes() { return W; }\n'
    text += "".join(source for _, source in FUNCTIONS.values())
    for name, _, _ in CASES:
        text += (
            f'extern "C" void f_{name}(const float* x, float* y, long n) {{\n'
            f"  for (long i = 0; i < n; i += W) store(y + i, {name}(load(x + i, Whole{{}})), "
            f"Whole{{}});\n}}\n"
        )
    for op in ("sum", "prod", "amax", "amin"):
        text += (
            f'extern "C" float a_{op}(const float* x) '
            f"{{ return across_{op}(load(x, Whole{{}})); }}\n"
        )
    return load_cpp(text, FLAGS)


def apply(library, name, x):
    y = torch.empty_like(x)
    function = getattr(library, f"f_{name}")
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    function(x.data_ptr(), y.data_ptr(), x.numel())
    return y


def every_exponent() -> torch.Tensor:
    """Random mantissas under every sign and exponent, finite ones and denormals."""
    rng = np.random.default_rng(7)
    bits = np.arange(512, dtype=np.uint32).repeat(256) << np.uint32(23)
    bits |= rng.integers(0, 1 << 23, bits.size, dtype=np.uint32)
    values = torch.from_numpy(bits.view(np.float32).copy())
    return values[torch.isfinite(values)]


def usual_range() -> torch.Tensor:
    return torch.linspace(-12, 12, 1 << 16)


@pytest.mark.parametrize(("name", "reference", "limit"), CASES)
@pytest.mark.parametrize("values", [every_exponent, usual_range])
def test_error_stays_within_a_few_units_in_the_last_place(library, name, reference, limit, values):
    x = values()
    x = x[: x.numel() // 16 * 16].contiguous()
    got, want = apply(library, name, x).double(), reference(x.double())
    limits = torch.finfo(torch.float32)
    normal = (want.abs() >= limits.tiny) & (want.abs() <= limits.max)
    error = ((got - want).abs() / want.abs())[normal].max()
    assert error <= limit * 2.0**-24
    # a result below the normal range may be flushed to 0; one beyond it is infinite
    small = want.abs() < limits.tiny
    assert ((got - want).abs()[small] <= limits.tiny).all()
    huge = want.abs() > limits.max * 1.0001
    assert (got[huge] == torch.sign(want[huge]) * math.inf).all()
    assert (torch.isnan(got) == torch.isnan(want)).all()


@pytest.mark.parametrize(("name", "reference", "limit"), CASES)
def test_infinities_nan_and_zero_come_out_as_torch_has_them(library, name, reference, limit):
    special = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0, -1.0, 3.4028235e38, -3.4028235e38]
    special += [1e-45, -1e-45, 1.1754942e-38, 88.7, 88.8, -103.9, -104.1, 9.02, -9.02, 3.92, -0.5]
    x = torch.tensor((special * 16)[: len(special) // 16 * 16 + 16])
    got, want = apply(library, name, x), reference(x.double()).float()
    assert torch.allclose(got, want, rtol=1e-6, atol=3e-45, equal_nan=True)


@pytest.mark.parametrize("op", ["sum", "prod", "amax", "amin"])
def test_lanes_are_joined(library, op):
    x = torch.randn(16)[: library.lanes()].contiguous()
    function = getattr(library, f"a_{op}")
    function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_float
    want = getattr(torch, op)(x.double()).item()
    assert function(x.data_ptr()) == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("op", ["amax", "amin"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_nan_in_any_lane_wins(library, op, place):
    x = torch.zeros(16)
    x[place] = math.nan
    function = getattr(library, f"a_{op}")
    function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_float
    assert math.isnan(function(x.data_ptr()))
