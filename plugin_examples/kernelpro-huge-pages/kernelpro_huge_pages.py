"""Example plugin with its own collector: does a large working set lie in huge pages?"""

import re
from collections.abc import Callable
from pathlib import Path

import kernelpro
from kernelpro import Action, Detector, Diagnosis, Evidence, KernelproError, Metric, Session

RESIDENT = "huge_pages.resident_bytes"
HUGE = "huge_pages.huge_bytes"

# A second-level TLB holds some 1500 entries: 6 MB in pages of 4 kB, 3 GB in pages of 2 MB.
COVERED_BYTES = 1500 * 4096


def read_pages(call: Callable[[], object], *, path: str) -> dict[str, int]:
    """Runs in the candidate's process: bytes of anonymous memory, all and in huge pages."""
    call()
    text = Path(path).read_text(encoding="utf-8")
    found = dict(re.findall(r"^(Anonymous|AnonHugePages):\s+(\d+) kB$", text, re.MULTILINE))
    return {"resident": int(found["Anonymous"]) * 1024, "huge": int(found["AnonHugePages"]) * 1024}


@kernelpro.hookimpl
def collect_metrics(names: frozenset[str], session: Session) -> dict[str, Metric]:
    """Read both numbers when the detector needs them."""
    if session.target != "cpu" or not names & {RESIDENT, HUGE}:
        return {}
    place = "/proc/self/smaps_rollup"
    try:
        seen = session.collect(f"{__name__}:read_pages", {"path": place})
        values = {RESIDENT: float(seen["resident"]), HUGE: float(seen["huge"])}
    except (KernelproError, LookupError, TypeError, ValueError) as error:
        return {n: Metric(value=None, how="absent", note=str(error)) for n in (RESIDENT, HUGE)}
    return {n: Metric(value=v, unit="bytes", note=place) for n, v in values.items()}


@kernelpro.detector(
    level="system",
    needs=(RESIDENT, HUGE),
    targets=("cpu",),
    threshold="a call touches > 4 times what the TLB covers, < 10 % of memory in huge pages (own)",
)
def small_pages(evidence: Evidence) -> Diagnosis | None:
    """A working set far larger than the TLB covers lies in small pages."""
    touched = evidence.problem.min_bytes
    share = evidence.profile[HUGE] / max(evidence.profile[RESIDENT], 1.0)
    if touched < 4 * COVERED_BYTES or share >= 0.1:
        return None
    return Diagnosis(
        bottleneck=(
            f"a call touches {touched / 1e6:.0f} MB, and {share:.0%} of the process's memory is in "
            "huge pages (cut 10%)"
        ),
        why="Each page of 4 kB needs an entry of the TLB; one that misses costs a page walk.",
        gain=0.05,
        confidence=0.2,
        actions=(
            Action(
                name="huge_pages",
                instruction="Allocate buffers aligned to 2 MB and call madvise(MADV_HUGEPAGE).",
            ),
        ),
        guard="Little to gain for streams that a prefetcher follows from page to page.",
    )


@kernelpro.hookimpl
def detectors() -> list[Detector]:
    """Give the one detector."""
    return [small_pages]
