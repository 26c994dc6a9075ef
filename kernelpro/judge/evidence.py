"""What a verdict rests on, as plain words: policy, limits, seeds, versions, clocks, isolation."""

import platform
from collections.abc import Mapping

import torch

from kernelpro.judge.inputs import Bank
from kernelpro.judge.tolerances import in_words
from kernelpro.records import Timing


def evidence(bank: Bank, isolation: str, timing: Timing | None) -> dict[str, str]:
    """Collect what a reader of the verdict needs to repeat or to doubt it.

    The seeds are shown as a hash: they stay secret as long as the bank is in use.
    """
    found = {
        "precision": bank.problem.precision,
        "input sets": ", ".join(s.name for s in bank.sets),
        "seeds sha256": bank.seeds_digest,
        "isolation": isolation,
        **_versions(),
    }
    for n, expected in enumerate(bank.expected(True)[0]):
        found[f"limits of output {n}"] = in_words(expected.dtype, bank.problem.precision)
    if timing is not None:
        found["clock"] = timing.clock
        found["timed calls"] = str(timing.runs)
    return found


def _versions() -> Mapping[str, str]:
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda and torch.cuda.is_available():
        versions["cuda"] = torch.version.cuda
        versions["device"] = torch.cuda.get_device_name()
    return versions
