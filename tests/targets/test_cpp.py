"""Building C++ ahead, and loading it: one key, one whole file, whoever builds and is killed."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelpro import targets
from kernelpro.errors import TargetError
from kernelpro.records import Candidate
from kernelpro.targets import cpp_loader, elf
from kernelpro.targets.compiler import compile_text, refused_flag, shorten
from kernelpro.targets.cpu import CpuTarget, build_cpp

LOADER = Path(cpp_loader.__file__).read_text(encoding="utf-8")
DOUBLE = 'extern "C" int apply(int x) { return 2 * x; }'
# Seconds of compiling: enough to be killed in.
SLOW = """
template <int N, int M> struct S { static constexpr long v = S<N - 1, M>::v + S<N - 1, M + 1>::v; };
template <int M> struct S<0, M> { static constexpr long v = M; };
extern "C" long apply() { return S<850, 0>::v; }
"""


def candidate(cpp, extra=""):
    source = f'{LOADER}\nCPP_SOURCE = r"""{cpp}"""\n{extra}\nlibrary = load_cpp(CPP_SOURCE'
    return Candidate(source=source + (", CPP_FLAGS)\n" if "CPP_FLAGS" in extra else ")\n"))


def built(task):
    """The build of a candidate that declares a source."""
    build = CpuTarget().build(task)
    assert build is not None
    return build


def worker(source, environment, **options):
    """A process that runs source as a worker would: another home, another folder."""
    return subprocess.Popen(
        [sys.executable, "-c", source],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finished(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def libraries(cache):
    return sorted((cache / "cpp").glob("*.so"))


def test_a_worker_loads_what_was_built_ahead_without_compiling(cache, tmp_path):
    target = targets.get("cpu")
    task = candidate(DOUBLE)
    build = built(task)
    assert build.ok
    assert not build.cached
    environment = target.worker_environment(tmp_path)
    before = libraries(cache)
    assert [str(p) for p in before] == [build.binary]
    inode = Path(build.binary).stat().st_ino
    out = finished(worker(task.source + "print(library._name, library.apply(21))", environment))
    assert out.split() == [build.binary, "42"]
    assert libraries(cache) == before
    assert Path(build.binary).stat().st_ino == inode  # a build replaces the file


def test_declared_flags_are_part_of_the_key_and_reach_the_compiler():
    source = 'extern "C" int apply() { return N; }'
    one = built(candidate(source, 'CPP_FLAGS = ("-O1", "-DN=1")'))
    two = built(candidate(source, 'CPP_FLAGS = ("-O1", "-DN=2")'))
    assert one.ok
    assert two.ok
    assert one.key != two.key
    assert ctypes.CDLL(two.binary).apply() == 2


def test_a_second_build_comes_from_the_cache():
    first, second = build_cpp(DOUBLE), build_cpp(DOUBLE)
    assert not first.cached
    assert first.seconds > 0
    assert second.cached
    assert second.seconds == 0
    assert (first.key, first.binary, first.machine_code) == (
        second.key,
        second.binary,
        second.machine_code,
    )


def test_equal_machine_code_has_equal_hashes_and_a_constant_makes_a_difference():
    body = 'extern "C" void f(float *x) {{ for (int i = 0; i < 64; ++i) x[i] *= {}; }}'
    plain = build_cpp(body.format("1.5f")).machine_code
    spaced = build_cpp("// the same\n" + body.format("3.0f / 2.0f")).machine_code
    other = build_cpp(body.format("1.25f")).machine_code
    assert plain == spaced
    assert plain != other


def test_calling_another_function_makes_a_difference():
    body = '#include <cmath>\nextern "C" double f(double x) {{ return {}(x); }}'
    hashes = {build_cpp(body.format(name)).machine_code for name in ("sin", "cos")}
    assert len(hashes) == 2


def test_parallel_builds_of_one_source_give_one_good_file(cache, tmp_path):
    task = candidate(DOUBLE)
    environment = targets.get("cpu").worker_environment(tmp_path)
    source = task.source + "print(library.apply(4))"
    running = [worker(source, environment) for _ in range(4)]
    ahead = built(task)
    assert [finished(process).strip() for process in running] == ["8"] * 4
    assert ahead.ok
    assert len(libraries(cache)) == 1
    assert list((cache / "cpp").iterdir()) == libraries(cache)


def test_a_killed_build_leaves_no_broken_file_and_its_leftovers_are_swept(cache, tmp_path):
    task = candidate(SLOW, 'CPP_FLAGS = ("-O1", "-ftemplate-depth=1000")')
    environment = CpuTarget().worker_environment(tmp_path)
    process = worker(task.source, environment, start_new_session=True)
    end = time.monotonic() + 60
    while not list((cache / "cpp").glob("tmp*")) and time.monotonic() < end:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert libraries(cache) == []
    leftovers = list((cache / "cpp").glob("tmp*"))
    assert leftovers
    for folder in leftovers:
        os.utime(folder, (0, 0))
    assert built(candidate(DOUBLE)).ok
    assert not any(folder.exists() for folder in leftovers)


def test_a_damaged_file_is_built_again():
    build = build_cpp(DOUBLE)
    Path(build.binary).write_bytes(b"\x7fELF")
    again = build_cpp(DOUBLE)
    assert not again.cached
    assert ctypes.CDLL(again.binary).apply(3) == 6


def test_a_compile_error_is_a_value_with_the_first_errors():
    build = built(candidate('extern "C" int apply() { return missing; }'))
    assert not build.ok
    assert build.binary == ""
    assert "error: 'missing' was not declared" in build.log
    many = "\n".join(f"int a{n} = missing{n};" for n in range(500))
    assert len(build_cpp(many).log) <= 2000


def test_the_loader_alone_tells_a_compile_error(tmp_path):
    task = candidate("int x = y;")
    process = worker(task.source, {"KERNELPRO_CPP_CACHE": str(tmp_path / "own")})
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "RuntimeError: the compiler refused it" in err
    assert "was not declared in this scope" in err
    assert list((tmp_path / "own").iterdir()) == []


def test_a_candidate_without_a_declared_source_is_not_built_ahead():
    assert CpuTarget().build(Candidate(source="import torch\n")) is None
    assert CpuTarget().build(Candidate(source="CPP_SOURCE = make()\n")) is None
    assert CpuTarget().build(Candidate(source="CPP_SOURCE = 'x'\nCPP_FLAGS = made()\n")) is None


@pytest.mark.parametrize(
    "flag",
    ["-wrapper", "-fplugin=x.so", "@file", "-o", "-specs=x", "-Wl,-rpath,/", "-fuse-ld=x",
     "-include", "-B/tmp", "-fdump-tree-all", "-save-temps", "-mllvm", "x.cpp", "-I/etc"],
)  # fmt: skip
def test_flags_that_run_programs_or_touch_files_are_refused(flag):
    build = built(candidate(DOUBLE, f"CPP_FLAGS = ('-O2', {flag!r})"))
    assert not build.ok
    assert repr(flag) in build.log


def test_flags_of_code_generation_are_allowed():
    flags = ("-Ofast", "-march=znver3", "-mprefer-vector-width=512", "-funroll-loops", "-DN=4",
             "-ffast-math", "-std=c++20", "-Wall", "-fno-math-errno", "--param=x")  # fmt: skip
    assert refused_flag(flags) == "--param=x"
    assert refused_flag(flags[:-1]) is None


def test_a_compiler_that_does_not_end_is_killed_with_its_children(tmp_path):
    pid = tmp_path / "child"
    script = f"sleep 1000 & echo $! > {pid}; wait"
    done = compile_text(["sh", "-c", script], "", tmp_path, deadline_s=0.5)
    assert not done.ok
    assert "did not end in" in done.log
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    end = time.monotonic() + 10
    while state.exists() and ") Z" not in state.read_text() and time.monotonic() < end:
        time.sleep(0.01)
    assert not state.exists() or ") Z" in state.read_text()


def test_a_missing_compiler_is_told_with_the_package_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    state = CpuTarget().availability()
    assert not state.ok
    assert "apt install g++" in state.remedy
    assert "dnf install gcc-c++" in state.remedy
    with pytest.raises(TargetError, match=r"apt install g\+\+"):
        built(candidate(DOUBLE))


def test_a_cache_folder_that_cannot_be_written_is_told(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELPRO_CACHE", str(tmp_path / "file"))
    with pytest.raises(TargetError, match="set KERNELPRO_CACHE to a folder that can"):
        build_cpp(DOUBLE)


def test_the_log_keeps_errors_and_their_context():
    log = "note: in here\nx.cpp:1: error: bad\n  code\n  ^\nwarning: unused\n"
    assert shorten(log) == "x.cpp:1: error: bad\n  code\n  ^"
    assert shorten("just words\n") == "just words"


def test_what_is_no_elf_file_is_told():
    with pytest.raises(ValueError, match="not a 64-bit"):
        elf.sections(b"text")
    with pytest.raises(ValueError, match="cut short"):
        elf.sections(b"\x7fELF\x02\x01" + b"\1" * 70)


def test_the_loader_is_small_and_needs_the_standard_library_alone():
    assert len(LOADER.splitlines()) < 60
    imports = [line for line in LOADER.splitlines() if line.startswith(("import", "from"))]
    modules = {line.split()[1].partition(".")[0] for line in imports}
    assert modules <= sys.stdlib_module_names


def test_a_kernel_shares_torchs_openmp_threads(tmp_path):
    source = (
        "#include <omp.h>\n"
        'extern "C" int apply() { int n = 0;\n#pragma omp parallel reduction(+ : n)\n'
        "n += 1;\nreturn n; }"
    )
    task = candidate(source)
    environment = CpuTarget().worker_environment(tmp_path)
    text = (
        "import torch\ntorch.set_num_threads(2)\n"
        + task.source
        + "\nmaps = open('/proc/self/maps').read().split()\n"
        "print(library.apply(), len({m for m in maps if 'libgomp' in m}))"
    )
    assert finished(worker(text, {**environment, "HOME": str(tmp_path)})).split() == ["2", "1"]
