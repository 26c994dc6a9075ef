"""Does any candidate take less energy than an equally fast one? A study over six problems.

    python -m benchmarks.energy_study --out results/h100/energy               # a GPU, about 3 h
    python -m benchmarks.energy_study --out DIR --only row_softmax --search 60 --pairs 1 --aa 4

Each problem is searched, then pairs of its accepted candidates that the search timed within the
margin are compared by the protocol of docs/energy.md, and so is eager torch with itself, which
must come out as no difference. Memory files, traces, plots, table.md and table.json are written to
the folder as they come; a second run goes on where the first ended.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import kernelpro
from kernelpro import energy_runs
from kernelpro.energy import plot, trace
from kernelpro.energy.comparison import Comparison, compare
from kernelpro.energy.protocol import EnergySettings
from kernelpro.serial import encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One problem of the study.

    Attributes:
        problem: a bundled problem.
        bound: what it is bound by at this size, by its FLOPs and bytes on an H100.
        sizes: constants that are replaced.
        precision: tolerance policy.
        graph: whether calls are replayed from a CUDA graph.
    """

    problem: str
    bound: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    precision: str = "strict"
    graph: bool = False

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.problem}-{self.bound}"


CASES = (
    Case(problem="row_softmax", bound="memory"),
    Case(problem="scale_gelu_residual", bound="memory"),
    Case(
        problem="matmul_epilogue",
        bound="compute",
        sizes={"batch": 8192, "in_features": 4096, "out_features": 4096},
    ),
    Case(
        problem="mlp_two_layer",
        bound="compute",
        sizes={
            "batch": 8192,
            "in_features": 2048,
            "hidden_features": 4096,
            "out_features": 2048,
        },
    ),
    # So small that the latency of launches, loads and barriers is all of the time. Launched one by
    # one they would run at the host's pace: a side's slowest window 1.15 to 1.71 times its fastest.
    Case(
        problem="layer_norm",
        bound="latency",
        sizes={"batch": 2, "tokens": 32, "features": 256},
        graph=True,
    ),
    Case(problem="cross_entropy", bound="latency", sizes={"rows": 64, "classes": 512}, graph=True),
)


def main() -> int:
    """Search, compare, print and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--only", action="append", default=[], metavar="PROBLEM")
    parser.add_argument("--search", type=float, default=180.0, help="seconds of search a problem")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of a problem at most")
    parser.add_argument("--aa", type=int, default=1, help="repeats of eager against itself")
    parser.add_argument("--window", type=float, default=10.0)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--idle", type=float, default=10.0, help="seconds of each idle phase")
    parser.add_argument("--warm", type=float, default=10.0, help="least seconds of warming up")
    parser.add_argument("--within", type=float, default=0.02)
    args = parser.parse_args()
    settings = EnergySettings(
        within=args.within,
        window_s=args.window,
        windows=args.windows,
        idle_s=args.idle,
        warm_s=args.warm,
    )
    args.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for case in CASES:
        if args.only and case.problem not in args.only:
            continue
        try:
            rows += _case(case, args, settings)
        except kernelpro.KernelproError as error:
            print(f"{case.name}: {error}", flush=True)
            rows.append({"problem": case.name, "bound": case.bound, "error": str(error)})
        _write(args.out, rows)
    print((args.out / "table.md").read_text(encoding="utf-8"))
    return 1 if any("error" in row for row in rows) else 0


def _case(case: Case, args: argparse.Namespace, settings: EnergySettings) -> list[dict[str, Any]]:
    settings = replace(settings, graph=case.graph)
    memory = args.out / f"{case.name}.jsonl"
    if not memory.exists():
        kernelpro.search(
            case.problem,
            target=args.target,
            seconds=args.search,
            sizes=case.sizes,
            precision=case.precision,
            memory_file=memory,
            stop_ratio=0.0,  # candidates at the roof are those that are equally fast
            confirm=False,  # both sides of a pair are judged again before they are weighed
        )
    traces = [
        (path, trace.read(path)) for path in sorted(args.out.glob(f"{case.name}.*.trace.jsonl"))
    ]
    if not traces:

        def keep(made: trace.Trace) -> None:
            path = args.out / f"{case.name}.{len(traces)}.trace.jsonl"
            trace.write(path, made)
            traces.append((path, made))

        for _ in range(args.aa):
            energy_runs.weigh(
                "eager",
                "eager",
                case.problem,
                target=args.target,
                sizes=case.sizes,
                precision=case.precision,
                settings=settings,
                tell=_tell,
                keep=keep,
            )
        try:
            list(
                energy_runs.weigh_memory(
                    memory, pairs=args.pairs, settings=settings, tell=_tell, keep=keep
                )
            )
        except kernelpro.KernelproError as error:
            print(f"{case.name}: {error}", flush=True)
    rows = []
    for path, made in traces:
        found = compare(made)
        plot.write(path.with_suffix("").with_suffix(".svg"), made, found)
        print(f"{case.name}: {found.sentence}", flush=True)
        rows.append(_row(case, path, found))
    return rows


def _tell(line: str) -> None:
    print(f"    {line}", flush=True)


def _row(case: Case, path: Path, found: Comparison) -> dict[str, Any]:
    return {
        "problem": case.name,
        "bound": case.bound,
        "trace": path.name,
        "aa": len({side.label for side in found.sides}) == 1,
        **encode(found),
    }


def _write(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows as JSON, and as a table with what they come to."""
    (folder / "table.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    lines = [
        f"Made by `python -m benchmarks.energy_study {' '.join(sys.argv[1:])}`.",
        "",
        "| problem | A | B | pairs | time B/A | J A | J B | J B/A | less idle | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    good = [row for row in rows if "error" not in row]
    for row in good:
        a, b = row["sides"]
        lines.append(
            f"| {row['problem']} | {a['label']} | {b['label']} | {row['pairs']} "
            f"| {_words(row['time'])} | {a['joules']:.4g} | {b['joules']:.4g} "
            f"| {_words(row['energy'])} | {_words(row['net_energy'])} | {row['verdict']} |"
        )
    lines += ["", *(f"- {row['problem']}: {row['error']}" for row in rows if "error" in row)]
    for same, words in ((True, "eager against itself"), (False, "pairs of candidates")):
        counts = Counter(str(row["verdict"]) for row in good if row["aa"] is same)
        told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        lines.append(f"- {words}: {told or 'none'}")
    (folder / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _words(ratio: Mapping[str, float] | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio['value']:.4f} ({ratio['low']:.4f}-{ratio['high']:.4f})"


if __name__ == "__main__":
    sys.exit(main())
