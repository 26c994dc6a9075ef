import contextlib
import json
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelpro.profiling.sass import cubin, disassembly, facts, tools
from kernelpro.profiling.sass.errors import SassError
from tests.profiling.sass.listings import CHIPS, DATA, compiled, needs_compiler, text

BOUNDED = """
extern "C" __global__ void __launch_bounds__(256, 8) bounded(const float* in, float* out, int n) {
  __shared__ float tile[512];
  float r[48];
#pragma unroll
  for (int i = 0; i < 48; i++) r[i] = in[threadIdx.x + i * 256];
  tile[threadIdx.x] = r[0];
  __syncthreads();
  for (int t = 0; t < n; t++)
#pragma unroll
    for (int i = 0; i < 48; i++) r[i] = r[i] * r[(i + 7) % 48] + tile[t];
#pragma unroll
  for (int i = 0; i < 48; i++) out[threadIdx.x + i * 256] = r[i];
}
__global__ void second(float* out) { out[threadIdx.x] = 1; }
"""


@pytest.fixture(scope="module", params=CHIPS)
def built(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cubin")
    path, log = compiled(folder, BOUNDED, "-O3", "-lineinfo", "-Xptxas", "-v", chip=request.param)
    return path, log, request.param


@needs_compiler
def test_a_cubin_gives_resources_as_the_compiler_reports_them(built):
    path, log, chip = built
    found = cubin.read(path.read_bytes())
    bounded = found.kernels["bounded"]
    assert found.sm == int(chip.strip("sm_a"))
    assert found.has_lines
    assert f"Used {bounded.registers} registers" in log
    assert f"{bounded.stack_bytes} bytes stack frame" in log
    assert bounded.shared_bytes == 2048
    assert bounded.max_threads == 256
    assert bounded.barriers == 1


@needs_compiler
def test_spills_are_those_that_nvdisasm_annotates(built):
    path, _, _ = built
    tool = tools.find("nvdisasm")
    if tools.release(tool) < (13, 4, 92):
        pytest.skip(
            "nvdisasm before 13.4.92 annotates no spills; pip install -U nvidia-cuda-nvdisasm"
        )
    _, annotated = json.loads(tools.run(tool, ["-json", "-annotate", str(path)]))
    for function in annotated:
        places = {
            16 * n
            for n, i in enumerate(function["sass-instructions"])
            if any(a["info"] == "SpillRefill" for a in i.get("annotations", ()))
        }
        kernel = cubin.read(path.read_bytes()).kernels[function["function-name"]]
        assert kernel.spills == frozenset(places)


@needs_compiler
def test_a_cubin_is_disassembled_with_lines_live_registers_and_spills(built):
    kernels = {k.name: k for k in facts.of_file(built[0])}
    assert set(kernels) == {"bounded", "second"}
    found = {name: m.value or 0 for name, m in kernels["bounded"].metrics.items()}
    assert found["sass.spills"] > 0
    assert found["sass.dynamic_local"] == 0
    assert 16 <= found["sass.live_registers"] <= found["sass.registers"] == 32
    assert found["sass.optimization_level"] == 3
    assert kernels["bounded"].metrics["sass.spills"].note.startswith("kernel.cu:")
    assert kernels["second"].metrics["sass.spills"].value == 0
    assert all(k.share == 0 for k in kernels.values())


@needs_compiler
def test_cubins_inside_another_file_are_found(built, tmp_path):
    content = built[0].read_bytes()
    for name, around in {
        "cupy.cubin": b"d41d8cd98f00b204e9800998ecf8427e" + content,
        "own.so": b"\x7fELF\x02\x01\x01" + b"\0" * 200 + content + b"\0" * 64 + b"end",
    }.items():
        path = tmp_path / name
        path.write_bytes(around)
        assert {k.name for k in facts.of_file(path)} == {"bounded", "second"}


@needs_compiler
def test_a_shared_object_of_nvcc_is_read(tmp_path):
    source, library = tmp_path / "own.cu", tmp_path / "own.so"
    source.write_text(BOUNDED)
    arch = "arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-gencode", arch, str(source)]
    subprocess.run([*command, "-o", str(library)], check=True, capture_output=True, timeout=120)
    assert {k.name for k in facts.of_file(library)} == {"bounded", "second"}


@needs_compiler
def test_a_cubin_that_is_cut_is_refused_in_one_sentence(built, tmp_path):
    content = built[0].read_bytes()

    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, len(content) - 1))
    def cut(length):
        with pytest.raises(SassError) as caught:
            cubin.read(content[:length])
        assert "\n" not in str(caught.value)

    cut()
    path = tmp_path / "cut.cubin"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(SassError, match=r"cut\.cubin: the cubin .* build it again"):
        facts.of_file(path)


@needs_compiler
def test_a_debug_build_says_so(tmp_path):
    path, _ = compiled(tmp_path, 'extern "C" __global__ void f(float* x) { *x = 1; }', "-G")
    (found,) = facts.of_file(path)
    assert found.metrics["sass.debug_build"].value == 1


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_read_or_refused(noise, as_cubin):
    header = b"\x7fELF\x02\x01\x01A\x08" + b"\0" * 9 + b"\xbe\x00" if as_cubin else b""
    with contextlib.suppress(SassError):
        assert cubin.read(header + noise).kernels == {}
    assert isinstance(cubin.images(noise + header + noise), list)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.cubin", b"", r"a\.cubin is empty \(0 bytes\)"),
        ("a.so", b"\x7fELF\x02\x01\x01" + b"\0" * 100, "no GPU machine code was found in it"),
        ("a.cubin", b"#!/bin/sh\n", "no GPU machine code was found in it"),
        ("a.sass", b"hello", "holds no SASS instruction"),
        ("a.txt", b"\0\xff" * 10, "holds no SASS instruction"),
    ],
)
def test_files_without_code_are_refused_in_one_sentence(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SassError, match=words) as caught:
        facts.of_file(path)
    assert "\n" not in str(caught.value)


def test_a_missing_and_a_huge_file_are_refused(tmp_path):
    with pytest.raises(SassError, match="cannot be read: No such file"):
        facts.of_file(tmp_path / "none.cubin")
    with (tmp_path / "huge.so").open("wb") as file:
        file.truncate(4 << 30)
    with pytest.raises(SassError, match=r"huge\.so has 4096 MB; expected a kernel's binary"):
        facts.of_file(tmp_path / "huge.so")


def test_a_listing_gives_the_same_kernels_as_its_text():
    path = DATA / "kernels.sm_80.sass"
    names = {k.name for k in facts.of_file(path)}
    assert names == {k.name for k in facts.of_listing(text("sm_80"))}
    assert "bad_slow_math" in names


def test_files_that_give_nothing_are_named(tmp_path):
    (tmp_path / "empty.cubin").write_bytes(b"")
    (tmp_path / "other.so").write_bytes(b"text")
    found, complaints = disassembly.of_files([tmp_path / "empty.cubin", tmp_path / "other.so"])
    assert found == ()
    assert [c.partition(":")[0].partition(" ")[0] for c in complaints] == [
        "empty.cubin",
        "other.so",
    ]
