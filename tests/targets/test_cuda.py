"""The CUDA target: what can be known without a GPU, and what needs one."""

import json
import os
import shutil
import signal
import struct
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpro.errors import TargetError
from kernelpro.profiling.sass import cubin
from kernelpro.records import Candidate
from kernelpro.targets.cuda import (
    CudaTarget,
    build_cuda,
    cutlass_here,
    nvcc_environment,
    resources,
)
from kernelpro.targets.nvrtc import Compiled, Compiler, Device, whole

H100 = Device(name="H100", arch="90", cupy="14", nvrtc="13.0", driver="13000")
SCALE = 'extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= FACTOR; }'


def candidate(extra='CUDA_OPTIONS = ("-std=c++17", "-DFACTOR=2.0f")'):
    return Candidate(source=f'CUDA_SOURCE = r"""{SCALE}"""\n{extra}\n', language="cuda")


class Recorded(Compiler):
    """Answers with a cubin that is any ELF file of this machine; counts how often it is asked."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def device(self, arch=""):
        return replace(H100, arch=arch or H100.arch)

    def compile(self, source, options, arch, deadline_s):
        self.asked.append((source, options, arch))
        if "bad" in source:
            return Compiled(ok=False, log='kernel.cu(1): error: identifier "bad" is undefined')
        log = "ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem"
        return Compiled(ok=True, log=log, cubin=Path("/proc/self/exe").read_bytes())


def test_declared_source_and_options_reach_the_compiler_once():
    compiler = Recorded()
    target = CudaTarget(compiler)
    first, second = target.build(candidate()), target.build(candidate())
    assert first is not None
    assert second is not None
    assert compiler.asked == [(SCALE, ("-std=c++17", "-DFACTOR=2.0f"), "90")]
    assert first.ok
    assert (first.cached, second.cached) == (False, True)
    assert first.machine_code == second.machine_code != ""
    assert first.resources == second.resources == {"registers": 32.0, "shared_bytes": 1024.0}
    assert Path(second.binary).read_bytes() == Path("/proc/self/exe").read_bytes()


def test_kernels_that_nvcc_compiles_count_in_a_builds_identity():
    target = CudaTarget(Recorded())
    flags = 'CUDA_OPTIONS = ("-std=c++17", "-DFACTOR=2.0f")'
    alone = target.build(candidate())
    some, more = (
        target.build(candidate(f'{flags}\nCUTLASS_SOURCE = r"""\n{name}\n"""\n'))
        for name in ("some", "more")
    )
    assert alone is not None
    assert some is not None
    assert more is not None
    assert len({alone.machine_code, some.machine_code, more.machine_code}) == 3
    again = target.build(candidate(f'{flags}\nCUTLASS_SOURCE = r"""\nsome\n"""\n'))
    assert again is not None
    assert again.machine_code == some.machine_code


def test_cutlass_is_there_only_with_headers_nvcc_and_ninja(tmp_path, monkeypatch):
    from torch.utils import cpp_extension

    header = tmp_path / "include" / "cutlass" / "version.h"
    header.parent.mkdir(parents=True)
    header.write_text("".join(f"#define CUTLASS_{p} 4\n" for p in ("MAJOR", "MINOR", "PATCH")))
    monkeypatch.setenv("KERNELPRO_CODE_SEARCH_ROOT", str(tmp_path))
    monkeypatch.setenv("PYTORCH_NVCC", shutil.which("true") or "")
    monkeypatch.setattr(cpp_extension, "is_ninja_available", lambda: True)
    assert cutlass_here("90") == ""  # some other tree
    (tmp_path / "include" / "cute").mkdir()
    assert cutlass_here("90") == "CUTLASS 4.4.4"
    monkeypatch.setattr(cpp_extension, "is_ninja_available", lambda: False)
    assert cutlass_here("90") == ""
    monkeypatch.setattr(cpp_extension, "is_ninja_available", lambda: True)
    monkeypatch.setenv("PYTORCH_NVCC", str(tmp_path / "nvcc"))
    assert cutlass_here("90") == ""


def test_a_compile_error_is_a_value_and_is_not_kept():
    compiler = Recorded()
    for _ in range(2):
        build = build_cuda(compiler, H100, "bad", ())
        assert not build.ok
        assert "identifier" in build.log
    assert len(compiler.asked) == 2


def test_a_damaged_cubin_is_compiled_again():
    compiler = Recorded()
    build = build_cuda(compiler, H100, SCALE, ())
    Path(build.binary).write_bytes(b"")
    assert build_cuda(compiler, H100, SCALE, ()).machine_code == build.machine_code
    assert len(compiler.asked) == 2


@pytest.mark.parametrize("option", ["--create-pch=x", "-fdevice-time-trace=x", "@f", "-Xptxas"])
def test_options_that_write_files_are_refused(option):
    build = CudaTarget(Recorded()).build(candidate(f"CUDA_OPTIONS = ({option!r},)"))
    assert build is not None
    assert not build.ok
    assert repr(option) in build.log


def test_code_for_one_architecture_is_built_for_that_one_alone():
    compiler = Recorded()
    made = CudaTarget(compiler).build(candidate('CUDA_OPTIONS = ("-arch=sm_90a",)'))
    assert made is not None
    assert made.ok
    assert compiler.asked == [(SCALE, ("-arch=sm_90a",), "90")]  # and sm_90 after it
    other = CudaTarget(compiler).build(candidate('CUDA_OPTIONS = ("-arch=sm_100a",)'))
    assert other is not None
    assert not other.ok
    assert "this GPU is sm_90" in other.log


def test_what_is_built_for_another_architecture_is_another_binary():
    compiler = Recorded()
    target = CudaTarget(compiler)
    own, other = target.build(candidate(), "sm_90"), target.build(candidate(), "sm_100")
    assert own is not None
    assert other is not None
    assert [arch for _, _, arch in compiler.asked] == ["90", "100"]
    assert own.binary != other.binary
    again = target.build(candidate())
    assert again is not None
    assert (again.cached, again.binary) == (True, own.binary), "this GPU is one of the first kind"
    made = target.build(candidate('CUDA_OPTIONS = ("-arch=sm_100a",)'), "sm_100")
    assert made is not None
    assert made.ok


def test_a_candidate_without_a_declared_source_is_not_built_ahead():
    assert CudaTarget(Recorded()).build(Candidate(source="import torch\n")) is None


def test_resources_are_read_from_the_assemblers_words():
    log = (
        "ptxas info    : Compiling entry function 'a' for 'sm_90'\n"
        "ptxas         .     256 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 1024 bytes smem\n"
        "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 32 registers\n"
    )
    assert resources(log) == {
        "registers": 255.0,
        "shared_bytes": 1024.0,
        "stack_bytes": 256.0,
        "spill_store_bytes": 16.0,
        "spill_load_bytes": 24.0,
        "spill_bytes": 40.0,
    }
    assert resources("") == {}


def test_every_cache_of_a_worker_lies_in_its_scratch_folder(tmp_path):
    environment = CudaTarget(Recorded()).worker_environment(tmp_path)
    assert environment.pop("CUPY_CACHE_IN_MEMORY") == "1"
    assert {"TRITON_CACHE_DIR", "CUDA_CACHE_PATH"} <= environment.keys()
    environment = {name: value for name, value in environment.items() if "NVCC" not in name}
    assert environment.pop("TORCH_CUDA_ARCH_LIST") == "9.0a"
    assert all(Path(folder).parent == tmp_path for folder in environment.values())


def test_extensions_are_built_for_this_gpu_and_find_cutlass(tmp_path):
    assert nvcc_environment("80", None) == {"TORCH_CUDA_ARCH_LIST": "8.0"}
    assert nvcc_environment("100", None) == {"TORCH_CUDA_ARCH_LIST": "10.0a"}
    assert "NVCC_PREPEND_FLAGS" not in nvcc_environment("90", tmp_path)  # some other tree
    (tmp_path / "include" / "cute").mkdir(parents=True)
    told = nvcc_environment("90", tmp_path)
    assert told["NVCC_PREPEND_FLAGS"] == f"-I{tmp_path}/include --expt-relaxed-constexpr"


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="nvcc is not on PATH; install the CUDA toolkit, which needs no GPU",
)
def test_nvcc_finds_headers_of_the_tree(tmp_path):
    header = tmp_path / "tree" / "include" / "cute" / "tensor.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("constexpr int twice(int x) { return 2 * x; }\n")
    source = tmp_path / "kernel.cu"
    source.write_text(
        "#include <cute/tensor.hpp>\n__global__ void fill(int* x, int n) { *x = twice(n); }\n"
    )
    done = subprocess.run(
        ["nvcc", "-std=c++17", "-arch=sm_90a", "-cubin", "-o", str(tmp_path / "out"), str(source)],
        env={**os.environ, **nvcc_environment("90", tmp_path / "tree")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_availability_says_what_is_missing_and_what_to_do():
    state = CudaTarget(Recorded()).availability()
    assert state.ok or (state.reason and state.remedy)


class Stopped(Compiler):
    """Its process is a shell script, so that hanging and dying need neither CuPy nor a GPU."""

    def __init__(self, script, folder):
        super().__init__()
        self._script = script
        self._folder = folder
        self.starts = 0

    def _command(self):
        self.starts += 1
        return ["sh", "-c", self._script, "sh", str(self._folder)]


def test_a_compiler_that_hangs_is_killed_and_the_next_request_starts_another(tmp_path):
    compiler = Stopped("read line; sleep 1000", tmp_path)
    compiler._process = None
    answer = {"ok": True, "log": "", "cubin": ""}
    began = time.monotonic()
    assert compiler._ask({"ask": "compile"}, 0.3) is None
    assert time.monotonic() - began < 60
    compiler._script = f"while read line; do echo '{json.dumps(answer)}'; done"
    assert compiler.compile("", (), "90", 30.0).ok
    assert compiler.starts == 2
    compiler.close()


def test_a_compiler_that_crashes_on_a_source_is_asked_twice_and_then_blames_it(tmp_path):
    compiler = Stopped("read line; exit 3", tmp_path)
    done = compiler.compile("", (), "90", 30.0)
    assert not done.ok
    assert "crashed" in done.log
    assert compiler.starts == 2


def test_a_compiler_that_died_while_idle_is_replaced(tmp_path):
    answer = {"ok": True, "log": "", "cubin": ""}
    compiler = Stopped(f"while read line; do echo '{json.dumps(answer)}'; done", tmp_path)
    assert compiler.compile("", (), "90", 30.0).ok
    assert compiler._process is not None
    os.kill(compiler._process.pid, signal.SIGKILL)
    assert compiler.compile("", (), "90", 30.0).ok
    assert compiler.starts == 2
    compiler.close()


@pytest.fixture(scope="module")
def nvrtc():
    pytest.importorskip("cupy", reason="NVRTC is reached through CuPy; pip install cupy-cuda13x")
    compiler = Compiler()
    yield compiler
    compiler.close()


def test_nvrtc_compiles_for_a_device_that_is_not_there(nvrtc):
    build = build_cuda(nvrtc, H100, SCALE, ("-std=c++17", "-DFACTOR=2.0f"))
    assert build.ok, build.log
    assert build.resources["registers"] > 0
    assert build.resources["spill_bytes"] == 0
    other = build_cuda(nvrtc, H100, SCALE, ("-std=c++17", "-DFACTOR=3.0f"))
    assert other.machine_code != build.machine_code


def test_nvrtc_needs_no_gpu_for_an_architecture_that_is_named(nvrtc):
    target = CudaTarget(nvrtc)
    builds = [target.build(candidate(), architecture) for architecture in ("sm_90", "sm_100")]
    kinds = [cubin.read(Path(build.binary).read_bytes()).sm if build else None for build in builds]
    assert kinds == [90, 100]
    with pytest.raises(TargetError, match=r"cannot compile for sm_20 here: .* knows sm_\d+,"):
        target.build(candidate(), "sm_20")


def test_nvrtcs_errors_are_told(nvrtc):
    build = build_cuda(nvrtc, H100, SCALE, ())
    assert not build.ok
    assert 'kernel.cu(1): error: identifier "FACTOR" is undefined' in build.log


def test_the_byte_that_cupy_takes_off_a_cubin_is_put_back():
    for segments, sections in ((66, 10), (10, 66)):  # where tables of 56 bytes an entry begin
        header = bytearray(64)
        struct.pack_into("<QQ", header, 0x20, segments, sections)
        struct.pack_into("<HHHH", header, 0x36, 56, 1, 56, 1)
        content = bytes(header) + bytes(66 + 56 - 64)  # an odd place: no multiple of 8
        assert whole(content[:-1]) == content
        assert whole(content) == content
    assert whole(b"") == b""


@pytest.mark.gpu
def test_a_source_that_builds_also_loads_and_runs():
    import cupy
    import torch

    target = CudaTarget()
    build = target.build(candidate())
    assert build is not None
    assert build.ok, build.log
    (kernel,) = cubin.read(Path(build.binary).read_bytes()).kernels
    assert kernel == "scale"
    module = cupy.RawModule(code=SCALE, options=("-std=c++17", "-DFACTOR=2.0f"))
    x = torch.ones(32, device="cuda")
    module.get_function("scale")((1,), (32,), (x.data_ptr(),))
    torch.cuda.synchronize()
    assert x.tolist() == [2.0] * 32


@pytest.mark.gpu
def test_the_gpus_peaks_are_measured_for_real():
    machine = CudaTarget().machine()
    assert machine.target == "cuda"
    assert 1e11 < machine.bandwidth_bytes_per_s < 1e14
    assert 1e12 < machine.flops_per_s["float32"] < 1e15
    assert machine.flops_per_s["bfloat16_tensor"] > machine.flops_per_s["float32"]
    assert machine.cache_bytes > 1 << 20
    assert 0.1 < machine.launch_us < 50
