"""How many load_inline candidates build with the light headers, how fast, and are they right?

    python -m benchmarks.load_inline                            # the CPU ones, light
    python -m benchmarks.load_inline --real relu swiglu gelu    # these with torch's headers too
    python -m benchmarks.load_inline --target cuda --real       # on a GPU machine; --real: all
    python -m benchmarks.load_inline --target cuda --compile-only   # nvcc, CUDA_HOME, no GPU

The candidates are those of tests/data/load_inline: written as models write them, each with its
problem. Every one runs in a process of its own with an empty build folder, one after another. With
--real the time of a call is compared too: the same inputs, both builds in one process each.
"""

import argparse
import functools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "data" / "load_inline"
MARK = "# --- candidate\n"
SEED = 7
CALLS = 200


def split(path: Path) -> tuple[str, str]:
    """The problem's and the candidate's source in one of these files."""
    problem, _, candidate = path.read_text(encoding="utf-8").partition(MARK)
    return problem, candidate


def child(path: Path, mode: str) -> dict[str, Any]:
    """Build one candidate, compare it with its problem, and time its calls; in this process.

    Args:
        path: the file.
        mode: `light`, `real` or `compile`.

    Returns:
        `seconds` of loading, `processor` seconds of the compilers, `headers`, `why`, and unless it
        was only compiled `right` and `us`.
    """
    import torch
    import torch.utils.cpp_extension as cpp_extension

    from kernelpro.judge import light_build

    records: list[dict[str, Any]] = []
    if mode != "real":
        cpp_extension.load_inline = _refuse(cpp_extension.load_inline)
        cpp_extension.load = _refuse(cpp_extension.load)
        light = light_build.LightBuild(cpp_extension)
        records = light.records
        if mode == "compile":
            _compile_only(light, cpp_extension)
        light.install()
    problem_source, candidate_source = split(path)
    problem: dict[str, Any] = {}
    exec(compile(problem_source, str(path), "exec"), problem)
    candidate: dict[str, Any] = {}
    init = problem["get_init_inputs"]()
    began = time.perf_counter()
    error = ""
    try:
        exec(compile(candidate_source, str(path), "exec"), candidate)
        torch.manual_seed(SEED)
        model = candidate["ModelNew"](*init)
    except NotLightError as failure:
        error = str(failure)
    seconds = time.perf_counter() - began
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    found: dict[str, Any] = {
        "seconds": sum(r["seconds"] for r in records) if records else seconds,
        "processor": spent.ru_utime + spent.ru_stime,
        "headers": "torch" if mode == "real" else "light",
        "why": "",
    }
    if error:
        return found | {"headers": "torch", "why": records[-1]["why"] if records else error}
    if mode == "compile":
        return found
    device = "cuda" if path.parent.name == "cuda" else "cpu"
    torch.manual_seed(SEED)
    reference = problem["Model"](*init).to(device)
    model = model.to(device)
    model.load_state_dict(reference.state_dict())
    inputs = [x.to(device) for x in problem["get_inputs"]()]
    with torch.no_grad():
        wanted, got = reference(*inputs), model(*inputs)
        pairs = zip(_tensors(wanted), _tensors(got), strict=True)
        right = all(
            torch.allclose(a.float(), b.float(), rtol=2e-2 if a.element_size() == 2 else 1e-3,
                           atol=2e-2 if a.element_size() == 2 else 1e-4)
            for a, b in pairs
        )  # fmt: skip
        times = []
        for _ in range(CALLS):
            began = time.perf_counter()
            model(*inputs)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
    return found | {"right": right, "us": 1e6 * statistics.median(times)}


class NotLightError(Exception):
    """The candidate would be built with torch's own headers."""


def _refuse(original: Callable[..., Any]) -> Callable[..., Any]:
    """Stand in for torch's function, with its signature, and build nothing."""

    @functools.wraps(original)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotLightError("it needs torch's own headers")

    return refuse


def _compile_only(light: Any, cpp_extension: Any) -> None:
    """Have extensions compiled and linked but not loaded, where there is nvcc but no GPU."""
    from kernelpro.targets import light as builder

    nvcc = Path(shutil.which("nvcc") or "nvcc")
    cpp_extension.CUDA_HOME = os.environ.get("CUDA_HOME") or str(nvcc.resolve().parents[1])
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")

    def build(extension: Any) -> None:
        store = Path(os.environ["TORCH_EXTENSIONS_DIR"])
        builder.build(extension, light._toolchain(extension), store)

    light._import = build


def _tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def measure(path: Path, mode: str) -> dict[str, Any]:
    """Run `child` in a fresh process with empty build folders."""
    with tempfile.TemporaryDirectory(prefix="kernelpro-") as folder:
        ran = subprocess.run(
            [sys.executable, "-m", "benchmarks.load_inline", "--child", str(path.resolve()), mode],
            cwd=folder,
            env={**os.environ, "TORCH_EXTENSIONS_DIR": folder, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    if ran.returncode:
        words = ran.stderr.strip().splitlines() or ["no message"]
        return {
            "seconds": 0.0,
            "processor": 0.0,
            "headers": "",
            "why": words[-1][:200],
            "right": False,
        }
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Print one line for each candidate, and the share that builds light."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--real", nargs="*", metavar="NAME", help="also with torch's headers")
    parser.add_argument("--compile-only", action="store_true", help="do not load what was built")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="leave the others out")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(Path(args.child[0]), args.child[1])))
        return
    files = sorted((FOLDER / args.target).glob("*.py"))
    files = [f for f in files if args.only is None or f.stem in args.only]
    load = os.getloadavg()[0]
    print(f"{len(files)} candidates; {os.cpu_count()} processors, load average {load:.1f}")
    print(f"{'candidate':24} {'headers':8} {'s':>7} {'CPU s':>6} {'answer':7} {'us a call':>10}")
    rows = []
    for path in files:
        found = measure(path, "compile" if args.compile_only else "light")
        rows.append(found)
        light = found["headers"] == "light"
        answer = "-" if "right" not in found else "right" if found["right"] else "WRONG"
        us = f"{found['us']:10.1f}" if "us" in found else " " * 10
        seconds = f"{found['seconds']:7.2f} {found['processor']:6.2f}"
        line = f"{path.stem:24} {found['headers']:8} {seconds} {answer:7} {us}"
        if args.real is not None and (not args.real or path.stem in args.real):
            real = measure(path, "real")
            answer = "right" if real.get("right") else f"WRONG {real['why']}"
            line += f"   torch's own: {real['seconds']:.1f} s, {real['processor']:.1f} CPU s, "
            line += f"{real.get('us', 0.0):.1f} us, {answer}"
        print(line + ("" if light else f"   {found['why']}"), flush=True)
    light_rows = [r for r in rows if r["headers"] == "light"]
    times = sorted(r["seconds"] for r in light_rows)
    print(
        f"light: {len(light_rows)} of {len(rows)}"
        + (f", median {statistics.median(times):.2f} s, most {times[-1]:.2f} s" if times else "")
    )
    if not args.compile_only:
        right = sum(bool(r.get("right")) for r in light_rows)
        print(f"right: {right} of {len(light_rows)} that build light")


if __name__ == "__main__":
    main()
