"""Collector for the CUDA target: facts of the machine code and of the compiler's log.

Nothing is run on the GPU. The code is the cubin that was built ahead of the run; for a candidate
that builds itself when loaded it is what Triton, Inductor or load_inline left in their caches.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelpro import Evaluation, Kernel, KernelproError, Metric, Profile, Session, hookimpl
from kernelpro.profiling.remote import absent, ask
from kernelpro.profiling.sass import ahead, disassembly, facts

PREFIXES = ("sass.", "compiler.")


@hookimpl
def collect_metrics(evaluation: Evaluation, names: frozenset[str], session: Session) -> Profile:
    """Give each kernel's static metrics, and the candidate's where it has one kernel."""
    asked = {name for name in names if name.startswith(PREFIXES)}
    if session.target != "cuda" or not asked:
        return Profile()
    kernels, why = _kernels(evaluation, session)
    if not kernels:
        return Profile(metrics=absent(sorted(asked), why))
    kept = tuple(
        Kernel(
            name=k.name,
            share=k.share,
            metrics={name: metric for name, metric in k.metrics.items() if name in asked},
        )
        for k in kernels
    )
    return Profile(metrics=_of_the_whole(kept, asked), kernels=kept)


def _kernels(evaluation: Evaluation, session: Session) -> tuple[tuple[Kernel, ...], str]:
    binary = evaluation.build.binary if evaluation.build else ""
    if binary:
        path = Path(binary)
        try:
            return facts.kernels(ahead.of_file(path), _log(path)), ""
        except KernelproError as error:
            return (), str(error)
    paths, why = ask(session, "kernelpro.profiling.sass.candidate_files:collect", {}, _paths)
    if not paths:
        return (), why or "the candidate's tools left no cubin and no shared object in their caches"
    found, complaints = disassembly.of_files(paths)
    return facts.kernels(found), "; ".join(complaints) or "no machine code was found"


def _paths(seen: Mapping[str, Any]) -> list[Path]:
    return [Path(item["path"]) for item in seen["files"]]


def _log(binary: Path) -> str:
    """The compiler's whole log, which the build's cache keeps beside the cubin."""
    try:
        return binary.with_suffix(".log").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _of_the_whole(kernels: tuple[Kernel, ...], asked: set[str]) -> Mapping[str, Metric]:
    """Metrics of a candidate with one kernel are that kernel's; those of several are not summed."""
    if len(kernels) == 1:
        found = dict(kernels[0].metrics)
        missing = sorted(asked - set(found))
        return found | absent(missing, "the machine code or its compiler's log does not tell it")
    known = {name for kernel in kernels for name in kernel.metrics}
    return absent(sorted(asked - known), "the machine code or its compiler's log does not tell it")
