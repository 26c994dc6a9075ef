"""What the light headers give: values, references, exceptions and threads; and the builder."""

import gc
import importlib.util
import shutil
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelpro.targets import light
from kernelpro.targets.light import Extension, LightBuildError, Toolchain

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor twice(const torch::Tensor& x) {
    TORCH_CHECK(x.dim() == 2, "two dimensions, not ", x.dim(), " of ", x.sizes());
    auto y = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "twice", [&] {
        for (int64_t i = 0; i < x.numel(); ++i)
            y.data_ptr<scalar_t>()[i] = x.data_ptr<scalar_t>()[i] * scalar_t(2);
    });
    return y;
}
torch::Tensor to_half(torch::Tensor x) {
    auto y = torch::empty(x.sizes(), x.options().dtype(torch::kHalf));
    for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<at::Half>()[i] = x.data_ptr<float>()[i];
    return y;
}
torch::Tensor to_float(torch::Tensor x) {
    auto y = torch::empty(x.sizes(), x.options().dtype(torch::kFloat));
    for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<at::Half>()[i];
    return y;
}
std::tuple<std::string, int64_t, double, bool, std::vector<int64_t>> all_kinds(
    std::string text, int64_t n, double d, bool b, at::IntArrayRef sizes,
    c10::optional<torch::Tensor> maybe, std::vector<torch::Tensor> many) {
    n += int64_t(many.size()) + (maybe.has_value() ? 100 : 0);
    return {text + "!", n, d / 2, !b, sizes.vec()};
}
// Every thread makes, computes with and drops tensors of Python.
torch::Tensor row_sums(torch::Tensor x) {
    auto y = torch::zeros({x.size(0)}, x.options());
    #pragma omp parallel for num_threads(4)
    for (int64_t r = 0; r < x.size(0); ++r) y.data_ptr<float>()[r] = x[r].sum().item<float>();
    return y;
}
torch::Tensor expression(torch::Tensor x) {
    auto halves = x.chunk(2, -1);
    auto t = (2 - halves[0]) / 4 + halves[1].view({x.size(0), -1}).t().contiguous().t() * 3.0;
    t += x.sum(-1, true) - x.mean();
    return torch::cat({t.to(torch::kDouble), torch::full({x.size(0), 1}, 7, torch::kFloat64)}, 1);
}
torch::Tensor product(torch::Tensor a, torch::Tensor b) { return a.matmul(b); }
torch::Tensor keep(torch::Tensor x) { return x; }
void fail(const std::string& how) {
    if (how == "index") torch::zeros({2, 3}).size(5);
    if (how == "value") throw std::invalid_argument("a bad value");
    if (how == "type") torch::zeros({2}).data_ptr<int>();
    if (how == "undefined") torch::Tensor().numel();
    TORCH_CHECK_NOT_IMPLEMENTED(false, "not yet: ", how);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("twice", &twice, "2x");
    m.def("to_half", &to_half);
    m.def("to_float", &to_float);
    m.def("all_kinds", &all_kinds, py::arg("text"), py::arg("n") = 1, py::arg("d") = 1.0,
          py::arg("b") = false, py::arg("sizes") = std::vector<int64_t>{},
          py::arg("maybe") = py::none(), py::arg("many") = std::vector<torch::Tensor>{});
    m.def("row_sums", &row_sums);
    m.def("expression", &expression);
    m.def("product", &product);
    m.def("keep", &keep);
    m.def("fail", &fail);
    m.def("count", [](torch::Tensor x) { static int calls = 0; return ++calls; });
    m.def("count", [](int64_t n) { return -n; });
}
"""


@pytest.fixture(scope="session")
def toolchain():
    compiler = shutil.which("g++")
    include = sysconfig.get_paths()["include"]
    if compiler is None or not Path(include, "Python.h").is_file():
        pytest.skip("needs g++ and Python's headers (apt install g++ python3-dev)")
    return Toolchain(compiler=compiler, standard="-std=c++17", python_include=include)


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture(scope="session")
def extension():
    return Extension(name="tried", sources=(("main.cpp", SOURCE),), cflags=("-fopenmp",))


def imported(library):
    spec = importlib.util.spec_from_file_location(library.stem, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def module(extension, toolchain, store):
    linked = replace(extension, ldflags=("-fopenmp",))
    return imported(light.build(linked, toolchain, store))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_values_are_right_in_every_type(module, dtype):
    x = torch.randn(5, 7).to(dtype)
    y = module.twice(x)
    assert y.dtype is dtype
    assert torch.equal(y, 2 * x)


def test_half_precision_rounds_as_torch_does(module):
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    assert torch.equal(module.to_float(every).nan_to_num(7.5), every.float().nan_to_num(7.5))
    between = torch.cat([every.float(), torch.randn(10_000) * torch.logspace(-9, 6, 10_000)])
    midway = (every.float()[:-1] + every.float()[1:]) / 2
    for x in (between, midway, torch.tensor([65519.0, 65520.0, 1e-8, -1e30])):
        got, wanted = module.to_half(x), x.half()
        assert torch.equal(got.nan_to_num(7.5), wanted.nan_to_num(7.5))


def test_arguments_and_results_of_every_kind(module):
    x = torch.ones(2)
    assert module.all_kinds("a") == ("a!", 1, 0.5, True, [])
    assert module.all_kinds("b", 2, 3, True, [4, 5], x, [x, x, x]) == (
        "b!",
        105,
        1.5,
        False,
        [4, 5],
    )
    assert module.all_kinds("c", many=(x,), sizes=torch.Size([6]))[1:] == (2, 0.5, True, [6])
    assert module.all_kinds(b"d", True, True, 1)[:4] == ("d!", 1, 0.5, False)
    assert module.count(5) == -5
    assert module.twice.__doc__ == "2x"
    for wrong in (
        (),
        (3,),
        ("a", 1.5),
        ("a", 1, "b"),
        ("a", 1, 1.0, "c"),
        ("a", 1, 1.0, True, [x]),
    ):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            module.all_kinds(*wrong)


def test_operators_are_torchs_own(module):
    x = torch.randn(6, 8)
    a, b = x.chunk(2, -1)
    wanted = (2 - a) / 4 + b * 3.0 + (x.sum(-1, keepdim=True) - x.mean())
    wanted = torch.cat([wanted.double(), torch.full((6, 1), 7, dtype=torch.float64)], 1)
    assert torch.equal(module.expression(x), wanted)
    assert module.keep(x) is x


def test_exceptions_are_pythons_with_their_text(module):
    with pytest.raises(RuntimeError, match=r"^two dimensions, not 1 of \[3\]$"):
        module.twice(torch.ones(3))
    with pytest.raises(NotImplementedError, match="\"twice\" not implemented for 'Int'"):
        module.twice(torch.ones(3, 3, dtype=torch.int32))
    cases = {"index": IndexError, "value": ValueError, "type": RuntimeError}
    for how, error in (cases | {"undefined": RuntimeError, "else": NotImplementedError}).items():
        with pytest.raises(error):
            module.fail(how)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):  # torch's own, unchanged
        module.product(torch.ones(2, 3), torch.ones(2, 3))


def test_threads_may_use_tensors_while_the_function_runs(module):
    x = torch.randn(64, 10)
    assert torch.allclose(module.row_sums(x), x.sum(1), atol=1e-5)


def test_nothing_is_kept_after_a_call(module):
    x, bad = torch.randn(100, 1000), torch.ones(3)

    def calls(times):
        for _ in range(times):
            module.twice(x)
            module.all_kinds("a", maybe=x, many=[x, x])
            with pytest.raises(RuntimeError):
                module.twice(bad)
            with pytest.raises(RuntimeError):
                module.product(x, bad[None])

    def alive():
        gc.collect()
        return sum(type(thing) is torch.Tensor for thing in gc.get_objects())

    calls(10)
    held, references, blocks = alive(), sys.getrefcount(x), sys.getallocatedblocks()
    resident = Path("/proc/self/statm").read_text().split()[1]
    calls(300)
    assert (alive(), sys.getrefcount(x)) == (held, references)
    assert sys.getallocatedblocks() - blocks < 200
    grown = int(Path("/proc/self/statm").read_text().split()[1]) - int(resident)
    assert grown * 4096 < 100 * x.nbytes  # 300 results of that size were made


def test_a_build_is_found_again_and_extensions_of_one_name_stand_apart(toolchain, store):
    text = (
        "#include <torch/extension.h>\nstatic int f() { static int n = 0; return ++n + ADDED; }\n"
    )
    text += 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }\n'
    one = Extension(name="same", sources=(("main.cpp", text),), cflags=("-DADDED=0",))
    other = replace(one, cflags=("-DADDED=100",))
    first, second = (light.build(e, toolchain, store) for e in (one, other))
    assert first != second
    made = first.stat().st_mtime_ns
    assert light.build(one, toolchain, store) == first
    assert first.stat().st_mtime_ns == made
    a, b = imported(first), imported(second)
    assert [a.f(), b.f(), a.f(), b.f()] == [1, 101, 2, 102]


def test_what_does_not_build_is_an_error_with_the_compilers_words(toolchain, tmp_path):
    text = "#include <torch/extension.h>\n#include <ATen/cpu/vec/vec.h>\n"
    with pytest.raises(LightBuildError, match=r"ATen/cpu/vec/vec\.h"):
        light.build(Extension(name="no", sources=(("a.cpp", text),)), toolchain, tmp_path)
    with pytest.raises(LightBuildError, match="no-such-compiler"):
        light.build(
            Extension(name="no", sources=(("a.cpp", text),)),
            replace(toolchain, compiler="no-such-compiler"),
            tmp_path,
        )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_headers_that_torchs_own_would_bring_are_added():
    assert light.implied_headers("std::sort(a, b); std::cout << 1;") == ["algorithm", "iostream"]
    assert light.implied_headers("float x = std::max(a, b);") == []
