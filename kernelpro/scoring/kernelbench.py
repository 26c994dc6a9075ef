"""KernelBench's run layout: reads other people's runs, and writes ours so that its scripts run.

A run is a folder with `level_L_problem_P_sample_S_kernel.py` files and `eval_results.json`:
`{"P": [{"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}]}`. A file
of baseline times is `{"levelL": {"P_Name.py": {"mean", ...}}}`. All times are milliseconds
(`torch.cuda.Event.elapsed_time`). The results name no level, so a folder holds one.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpro import export
from kernelpro.errors import KernelproError
from kernelpro.records import Outcome, Timing
from kernelpro.runs import Recorded
from kernelpro.scoring.run import Entry, Run, best_accepted, ordered, place_of

RESULTS = "eval_results.json"
_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")

Times = Mapping[tuple[int, int], float]
"""Milliseconds by level and number of the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A kernel file of a run.

    Attributes:
        level: KernelBench's level.
        number: of the problem in its level.
        sample: number of the sample.
        file: its path.
    """

    level: int
    number: int
    sample: int
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a run's own results say of a sample.

    Attributes:
        correct: whether it is said to be correct; None where nothing is said.
        runtime_ms: time of a call, or None.
        speedup: over the baseline whose times are there, if any are.
    """

    correct: bool | None = None
    runtime_ms: float | None = None
    speedup: float | None = None


def samples(folder: Path) -> list[Sample]:
    """The kernel files of a run, by level, problem and sample.

    Raises:
        KernelproError: there is no such folder, or no kernel file in it.
    """
    try:
        names = [(file, _KERNEL.fullmatch(file.name)) for file in folder.iterdir()]
    except OSError as error:
        raise KernelproError(
            f"cannot read the run {folder}: {error.strerror}; name a folder of kernel files"
        ) from error
    found = [
        Sample(level=int(m[1]), number=int(m[2]), sample=int(m[3]), file=file)
        for file, m in names
        if m
    ]
    if not found:
        raise KernelproError(
            f"{folder} holds no kernel file; expected KernelBench's names, such as "
            "level_1_problem_23_sample_0_kernel.py"
        )
    return sorted(found, key=lambda s: (s.level, s.number, s.sample))


def claims(folder: Path, times: Sequence[Path] = ()) -> dict[tuple[int, int, int], Claim]:
    """What a run's results say, by level, problem and sample; empty where it has none.

    Args:
        folder: the run's.
        times: files of baseline times; the first decides, else the first in the folder.

    Raises:
        KernelproError: a file is not as KernelBench writes it.
    """
    if not is_run(folder):
        return {}
    files = [*times, *sorted(folder.glob("baseline_time_*.json"))]
    baseline = read_times(files[0]) if files else {}
    results = _results(folder)
    found = {}
    for sample in samples(folder):
        entries = results.get(sample.number, [])
        entry = next((e for e in entries if e.get("sample_id") == sample.sample), None)
        if entry is None:
            continue
        correct = entry.get("compiled") is True and entry.get("correctness") is True
        runtime = _milliseconds(entry.get("runtime")) if correct else None
        base = baseline.get((sample.level, sample.number))
        found[sample.level, sample.number, sample.sample] = Claim(
            correct=correct,
            runtime_ms=runtime,
            speedup=base / runtime if base is not None and runtime is not None else None,
        )
    return found


def times_name(file: Path) -> str:
    """What a baseline is called by its file's name: `eager` for baseline_time_eager.json."""
    return file.stem.removeprefix("baseline_time_")


def is_run(folder: Path) -> bool:
    """Whether a folder is a KernelBench run."""
    return (folder / RESULTS).is_file()


def read(folder: Path, times: Mapping[str, Times], *, sample: int = 0) -> Run:
    """Read a run.

    A problem that has a kernel file but no result counts as a failure.

    Args:
        folder: the run's.
        times: baselines by name, as `read_times` gives them; a result that kernelpro wrote
            carries its own baseline besides.
        sample: which sample of each problem counts; KernelBench's analysis takes 0.

    Raises:
        KernelproError: a file is not as KernelBench writes it.
    """
    results = _results(folder)
    kernels = [
        (int(m[1]), int(m[2]))
        for file in sorted(folder.iterdir())
        if (m := _KERNEL.fullmatch(file.name)) and int(m[3]) == sample
    ]
    levels = {level for level, _ in kernels}
    level = levels.pop() if len(levels) == 1 else None
    numbers = {number for _, number in kernels} if level is not None else set()
    numbers |= results.keys()
    found = {
        number: entry
        for number, entries in results.items()
        for entry in entries
        if entry.get("sample_id") == sample
    }
    entries = [_entry(level, n, found.get(n, {}), times) for n in numbers]
    return Run(name=folder.name, kind="KernelBench", entries=ordered(entries))


def _results(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """A run's results by the problem's number, each a list of samples."""
    found: dict[int, list[dict[str, Any]]] = {}
    for key, entries in _object(folder / RESULTS).items():
        if not key.isdigit() or not isinstance(entries, list):
            raise KernelproError(
                f"{folder / RESULTS}: expected a list of samples by each problem's number, but "
                f"found {key!r:.40}; write it with KernelBench's eval_from_generations"
            )
        found[int(key)] = [entry for entry in entries if isinstance(entry, dict)]
    return found


def _entry(
    level: int | None, number: int, result: Mapping[str, Any], times: Mapping[str, Times]
) -> Entry:
    runtime = _milliseconds(result.get("runtime"))
    correct = result.get("compiled") is True and result.get("correctness") is True
    speedups = {}
    if correct and runtime is not None:
        for name, table in times.items():
            if level is not None and (level, number) in table:
                speedups[name] = table[level, number] / runtime
        metadata = result.get("metadata")
        own = metadata.get("kernelpro") if isinstance(metadata, dict) else None
        if isinstance(own, dict) and (ratio := _milliseconds(own.get("speedup"))) is not None:
            speedups[str(own.get("baseline"))] = ratio  # of interleaved calls: the better one
    return Entry(
        name=str(number),
        level=level,
        number=number,
        accepted=correct,
        median_us=None if runtime is None or not correct else runtime * 1000.0,
        speedups=speedups,
    )


def read_times(file: Path) -> Times:
    """Read a file of baseline times: milliseconds by level and number.

    Raises:
        KernelproError: it is not as KernelBench writes it.
    """
    found = {}
    for level, problems in _object(file).items():
        if not isinstance(problems, dict):
            raise KernelproError(f"{file}: expected problems by level, but {level!r:.40} has none")
        for name, entry in problems.items():
            mean = _milliseconds(entry.get("mean")) if isinstance(entry, dict) else None
            where = place_of(f"{level}/{name}")
            if mean is not None and where[0] is not None and where[1] is not None:
                found[where[0], where[1]] = mean
    if not found:
        raise KernelproError(
            f"{file} holds no time; expected a KernelBench file of baseline times, such as "
            '{"level1": {"23_Softmax.py": {"mean": 0.1}}} in milliseconds'
        )
    return found


def write(folder: Path, searches: Sequence[Recorded]) -> list[Path]:
    """Write searches as KernelBench runs: one folder, or one a level below it where there are more.

    A winner's file is byte for byte what was judged. `runtime` is the median of the judged calls,
    not KernelBench's mean over its own trials; `metadata` says so and holds the speed-up. Each
    folder has the baseline's times, as measured between those calls, in
    `baseline_time_NAME.json`.

    Raises:
        KernelproError: a problem's path tells no level and number, or there is a run already.
    """
    levels: dict[int, list[tuple[int, Recorded]]] = {}
    for recorded in searches:
        level, number = place_of(recorded.header.problem.origin)
        if level is None or number is None:
            raise KernelproError(
                f"{recorded.header.problem.origin} is no KernelBench problem; expected a path such "
                "as level1/23_Softmax.py, whose level and number name the files of a run"
            )
        levels.setdefault(level, []).append((number, recorded))
    targets = {
        level: folder if len(levels) == 1 else folder / f"level{level}" for level in sorted(levels)
    }
    for target in targets.values():
        if is_run(target):
            raise KernelproError(f"{target} holds a run already; name another folder")
    for level, target in targets.items():
        for file, content in _files(level, sorted(levels[level], key=lambda item: item[0])):
            export.write(target / file, content)
    return list(targets.values())


def _files(level: int, numbered: list[tuple[int, Recorded]]) -> Iterator[tuple[str, str]]:
    results: dict[str, list[Any]] = {}
    baselines: dict[str, dict[str, Any]] = {}
    for number, recorded in numbered:
        found = best_accepted(recorded.steps, recorded.best, recorded.confirmations)
        machine = recorded.header.machine
        compiled = any(
            s.evaluation.outcome not in (Outcome.REFUSED, Outcome.COMPILE_ERROR)
            for s in recorded.steps[1:]
        )
        entry: dict[str, Any] = {
            "sample_id": 0,
            "compiled": compiled,
            "correctness": found is not None,
            "metadata": {},
            "runtime": -1.0,
            "runtime_stats": {},
        }
        if found is not None:
            step, timing, confirmed = found
            name = f"level_{level}_problem_{number}_sample_0_kernel.py"
            yield name, step.candidate.source
            entry["runtime"] = timing.median_us / 1000.0
            entry["runtime_stats"] = {
                "median": timing.median_us / 1000.0,
                "p20": timing.p20_us / 1000.0,
                "p80": timing.p80_us / 1000.0,
                "num_trials": timing.runs,
                "hardware": machine.device,
                "device": machine.target,
            }
            entry["metadata"] = {
                "kernelpro": {
                    "baseline": timing.baseline,
                    "speedup": timing.speedup,
                    "speedup_low": timing.speedup_low,
                    "speedup_high": timing.speedup_high,
                    "judged_again": confirmed,
                    "runtime": "median of the judged calls",
                    "clock": timing.clock,
                }
            }
        # A problem without a winner needs its baseline too, or an analysis would leave it out.
        clocked = found[1] if found is not None else _own_timing(recorded)
        if clocked is not None:
            baselines.setdefault(clocked.baseline, {})[_file_name(recorded)] = {
                "mean": clocked.baseline_us / 1000.0,
                "statistic": "median of the baseline's calls in the judge's timing",
                "num_trials": clocked.runs,
                "hardware": machine.device,
                "device": machine.target,
            }
        results[str(number)] = [entry]
    yield RESULTS, json.dumps(results, indent=4) + "\n"
    for baseline, table in baselines.items():
        name = re.sub(r"\W+", "_", baseline)
        yield f"baseline_time_{name}.json", json.dumps({f"level{level}": table}, indent=4) + "\n"


def _own_timing(recorded: Recorded) -> Timing | None:
    """The baseline's timing against itself, which every search begins with."""
    return recorded.steps[0].evaluation.timing if recorded.steps else None


def _file_name(recorded: Recorded) -> str:
    return Path(recorded.header.problem.origin).name


def _milliseconds(value: Any) -> float | None:
    """A positive, finite number, or None: KernelBench writes -1 where nothing was timed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0.0 < value < 1e12 else None


def _object(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise KernelproError(f"cannot read {file}: {error.strerror}; name another file") from error
    except (ValueError, RecursionError) as error:
        raise KernelproError(f"{file} is no JSON file ({error}); write it again") from error
    if not isinstance(value, dict):
        raise KernelproError(f"{file}: an object expected, but found {value!r:.40}")
    return value
