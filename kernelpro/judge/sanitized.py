"""The program that compute-sanitizer watches: one call of a candidate on the problem's inputs.

python -m kernelpro.judge.sanitized JOB.json
"""

import importlib.util
import json
import sys
from pathlib import Path

SEED = 20260101  # nothing is compared here, so it need not be secret


def main(job: Path) -> None:
    """Load the candidate, call it once, and wait for the device."""
    import torch

    from kernelpro.problems.module import instantiate
    from kernelpro.records import Problem

    request = json.loads(job.read_text(encoding="utf-8"))
    module = instantiate(Problem(**request["problem"]))
    device = torch.device("cuda" if request["problem"]["target"] == "cuda" else "cpu")
    inputs = [
        value.to(device) if isinstance(value, torch.Tensor) else value
        for value in module.inputs(SEED)
    ]
    args, kwargs = module.init_arguments()
    spec = importlib.util.spec_from_file_location("candidate", request["candidate"])
    assert spec is not None
    assert spec.loader is not None
    candidate = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = candidate
    spec.loader.exec_module(candidate)
    torch.manual_seed(SEED)
    model = candidate.ModelNew(*args, **kwargs).to(device)
    with torch.no_grad():
        model(*inputs)
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
