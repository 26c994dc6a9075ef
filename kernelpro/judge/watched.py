"""The program that a tool watches: calls of a candidate, of which only the last counts.

    python -m kernelpro.judge.watched JOB.json

Nsight Compute and compute-sanitizer run it. The job names the `candidate` file (null: the problem's
own module is called), the `problem` with name, origin, source, target and sizes, and how many
`warm` calls come before the one between cudaProfilerStart and cudaProfilerStop. `light_build`, true
unless said otherwise, is the judge's setting of that name. With `scratch` the process may write to
that folder alone. No more confines it: only for candidates that were accepted.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

SEED = 20260101  # nothing is compared here, so it need not be secret
WARM = 2


def main(job: Path) -> None:
    """Load, warm up, and call once more while the profiler listens."""
    import torch

    request = json.loads(job.read_text(encoding="utf-8"))
    if scratch := request.get("scratch"):
        _confine(Path(scratch), request["problem"]["target"])
    model, inputs, device = load(request)
    with torch.no_grad():
        for _ in range(int(request.get("warm", WARM))):
            model(*inputs)
        if device.type != "cuda":
            model(*inputs)
            return
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]  # torch's own gap
        model(*inputs)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]  # as above


def _confine(scratch: Path, device: str) -> None:
    """Keep writes to the scratch folder; system calls are left to the tool that watches."""
    from kernelpro.judge import limits, privileges
    from kernelpro.judge.confinement import Rules, confine

    rules = Rules(
        scratch=scratch,
        device=device,
        file_bytes=1 << 30,
        memory_bytes=limits.free_memory_bytes(),
        seccomp=False,
        capabilities=privileges.EVERY,
    )
    confine(rules)


def load(request: dict[str, Any]) -> tuple[Any, list[Any], Any]:
    """Construct what the job names on its device.

    Returns:
        The module, the arguments of one call, and the device.
    """
    import torch

    from kernelpro.judge import light_build
    from kernelpro.judge.inputs import shipped
    from kernelpro.problems.module import instantiate
    from kernelpro.records import Problem

    module = instantiate(Problem(**request["problem"]))
    device = torch.device("cuda" if request["problem"]["target"] == "cuda" else "cpu")
    inputs = shipped(module, SEED, device)
    if request["candidate"] is None:
        return module.model(SEED).to(device), inputs, device
    if request.get("light_build", True):
        source = Path(request["candidate"]).read_text(encoding="utf-8")
        if light_build.concerns(source):
            light_build.install()
    spec = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert spec is not None
    assert spec.loader is not None
    candidate = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = candidate
    spec.loader.exec_module(candidate)
    args, kwargs = module.init_arguments()
    torch.manual_seed(SEED)
    return candidate.ModelNew(*args, **kwargs).to(device), inputs, device


if __name__ == "__main__":
    main(Path(sys.argv[1]))
