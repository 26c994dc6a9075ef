"""`kernelpro diagnose`: what detectors see in files that profilers and compilers wrote."""

import argparse
import json
import sys
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from kernelpro.cli.arguments import add_without, positive

if TYPE_CHECKING:
    from kernelpro.recordings import Examined, Recording

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "diagnose",
        help="diagnose a recorded profile, timeline or binary",
        description="Say what holds kernels back, from files that others recorded: .ncu-rep, nsys "
        ".sqlite and .nsys-rep, torch.profiler .json and .json.gz, .cubin, .so, .sass. Needs no "
        "GPU. Exit status 0: diagnosed; 2: a file could not be used.",
    )
    command.add_argument("files", nargs="+", type=Path, help="recorded files")
    command.add_argument(
        "--kernel", default="", metavar="REGEX", help="only kernels whose name contains this"
    )
    command.add_argument(
        "--top", type=positive, default=3, metavar="N", help="findings to tell (default: 3)"
    )
    command.add_argument("--metrics", action="store_true", help="list every metric as well")
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    add_without(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Diagnose each file; one that cannot be used does not keep the others from being told."""
    from kernelpro.errors import KernelproError
    from kernelpro.recordings import diagnose

    status = 0
    told: list[dict[str, Any]] = []
    for file in args.files:
        try:
            recording = diagnose(file, kernel=args.kernel, block=args.without)
        except KernelproError as error:
            print(f"kernelpro: error: {error}", file=sys.stderr)
            status = 2
            continue
        if args.json:
            told.append(_plain(recording, args.top))
        else:
            print(text(recording, args.top, metrics=args.metrics))
    if args.json:
        print(json.dumps(told, indent=1))
    return status


def text(recording: "Recording", top: int, *, metrics: bool) -> str:
    """Tell a recording: each kernel's class, its best findings, and the profiler's own rules."""
    where = f" on {recording.device}" if recording.device else ""
    count = len(recording.examined)
    what = "" if recording.kind == "timeline" else f", {count} kernel{'s' * (count != 1)}"
    lines = [f"{recording.path}: {recording.kind}{where}{what}"]
    for examined in recording.examined:
        lines += ["", *_kernel(examined, top, metrics)]
    lines += [f"note: {note}" for note in recording.notes]
    return "\n".join(lines)


def _kernel(examined: "Examined", top: int, metrics: bool) -> list[str]:
    from kernelpro.cli.text import profile_lines

    share = f" ({examined.share:.0%} of the recorded time)" if 0 < examined.share < 1 else ""
    lines = [f"== {examined.name}{share}", examined.classification.text]
    lines += profile_lines(examined.profile, examined.diagnoses, top=top, metrics=metrics)
    for rule in sorted(examined.rules, key=lambda rule: -rule.speedup_pct)[:top]:
        estimate = f" (estimates {rule.speedup_pct:.0f} % {rule.speedup_kind})"
        lines.append(
            f"  the profiler's own rule {rule.name}{estimate if rule.speedup_pct else ''}: "
            f"{shorten(rule.message, 160, placeholder=' ...')}"
        )
    return [line for line in lines if line]


def _plain(recording: "Recording", top: int) -> dict[str, Any]:
    from kernelpro.ranking import shortlist
    from kernelpro.serial import encode

    return {
        "file": str(recording.path),
        "kind": recording.kind,
        "device": recording.device,
        "notes": list(recording.notes),
        "kernels": [
            {
                "name": e.name,
                "share": e.share,
                "classification": encode(e.classification),
                "findings": encode(shortlist(e.diagnoses, top)),
                "all_findings": encode(e.diagnoses),
                "profile": encode(e.profile),
                "profilers_own_rules": encode(e.rules),
            }
            for e in recording.examined
        ],
    }
