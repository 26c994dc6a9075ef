"""`kernelpro calibrate`: measure this machine's peaks and check the detectors' own cuts on it."""

import argparse
import json

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "calibrate",
        help="measure this machine's peaks and check the detectors' cuts on it",
        description="Measure the processor's peaks, run pairs of kernels with and without a fault, "
        "and move those of the detectors' own cuts that do not tell them apart here. The result "
        "is kept in the configuration folder ($KERNELPRO_CONFIG).",
    )
    command.add_argument("--dry-run", action="store_true", help="show the result, write nothing")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Calibrate, print, and write unless told not to."""
    from kernelpro import targets
    from kernelpro.errors import KernelproError
    from kernelpro.profiling import calibration
    from kernelpro.serial import encode

    target = targets.get("cpu")
    available = target.availability()
    if not available.ok:
        raise KernelproError(f"nothing can be calibrated: {available.reason}; {available.remedy}")
    machine = target.machine()
    rows = calibration.calibrate_cpu(machine.threads)
    unpaired = calibration.unpaired(rows)
    path = None if args.dry_run else calibration.write(rows, machine)
    if args.json:
        answer = {
            "machine": encode(machine),
            "cuts": encode(rows),
            "unpaired": unpaired,
            "file": str(path) if path else None,
        }
        print(json.dumps(answer, indent=1))
        return 0
    print(f"{machine.device}, {machine.threads} threads")
    print(f"  bandwidth {machine.bandwidth_bytes_per_s / 1e9:.1f} GB/s")
    for name, rate in machine.flops_per_s.items():
        print(f"  {name} {rate / 1e9:.1f} GFLOP/s")
    print()
    print(f"{'cut':28} {'bad':>10} {'fixed':>10} {'table':>8} {'here':>8}")
    for row in rows:
        print(
            f"{row.threshold:28} {_number(row.bad):>10} {_number(row.fixed):>10} "
            f"{row.table:8.4g} {row.cut:8.4g}  {row.verdict}"
        )
    print()
    for row in rows:
        if row.verdict == "overlaps":
            print(f"{row.threshold}: the two kernels cannot be told apart here; the table's stays")
    print(f"{len(unpaired)} more cuts of our own have no pair of kernels and stay as they are")
    print("nothing was written (--dry-run)" if path is None else f"written to {path}")
    return 0


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
