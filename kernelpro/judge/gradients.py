"""Judges a candidate's backward pass: gradients of inputs and parameters against float64.

The outputs' gradients are normal numbers from a seed that the worker is told with the request.
Gradients are compared like outputs, with the reference's own error as the yardstick; a gradient
that the reference does not have (None) may be zeros. Parameters take part when they are the
reference's by order and shape.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import torch

from kernelpro.errors import JudgeError
from kernelpro.judge import raw, switches
from kernelpro.judge.autograd import pull_back
from kernelpro.judge.correctness import Findings, compare_outputs, read_outputs
from kernelpro.judge.inputs import Bank
from kernelpro.judge.numerics import Expected
from kernelpro.judge.reference import Reference, yardstick
from kernelpro.judge.settings import JudgeSettings
from kernelpro.judge.workers import WorkerProcess


def judge_gradients(
    worker: WorkerProcess,
    bank: Bank,
    perturbed: bool,
    settings: JudgeSettings,
    findings: Findings,
) -> None:
    """Run a backward pass on each input set and compare all gradients.

    Raises:
        Failure: its worker failed.
        JudgeError: the reference has no gradient, or its backward pass raises.
    """
    reference = bank.reference(perturbed)
    for index, each in enumerate(bank.sets):
        salt = secrets.randbelow(2**31)
        try:
            wanted = expected_gradients(reference, each.value, salt)
        except Exception as error:
            raise JudgeError(
                f"problem {bank.problem.name}: the reference's backward pass raised "
                f"{type(error).__name__}: {str(error)[:300]}"
            ) from error
        if not wanted:
            raise JudgeError(
                f"problem {bank.problem.name}: no output depends on a floating-point input or "
                "parameter, so there is no backward pass to judge"
            )
        if not perturbed:
            wanted = wanted[: sum(t.is_floating_point() for t in raw.tensors_in(each.value))]
        reply = worker.channel.request(
            "backward",
            settings.first_call_deadline_s,
            set=index,
            salt=salt,
            parameters=perturbed,
        )
        described = reply.get("tensors")
        if reply.get("gradients") is not True:
            findings.reject(
                "no_gradient",
                "its outputs do not depend on inputs or parameters for autograd; give its kernels "
                "a backward pass (torch.autograd.Function)",
            )
            return
        found = described if isinstance(described, list) else []
        forms = [[raw.dtype_name(e.dtype), list(e.shape)] for e in wanted]
        if [[a.get("dtype"), a.get("shape")] for a in found if isinstance(a, dict)] != forms:
            findings.reject("gradient_form", "its gradients have other shapes or types")
            return
        compare_outputs(
            read_outputs(worker.out, wanted), wanted, f"{each.name}, gradients", findings
        )
        if not findings.ok:
            return


def expected_gradients(reference: Reference, value: Sequence[Any], salt: int) -> list[Expected]:
    """Gradients of the floating-point inputs, then of the parameters; none if there are none."""
    native = backward(reference.native, value, reference.device, salt)
    if native is None:
        return []
    wide = native
    if reference.double is not None:
        wide = backward(reference.double, value, reference.device, salt, wide=True) or native
    return [yardstick(a, b, reference.policy) for a, b in zip(native, wide, strict=True)]


def backward(
    model: torch.nn.Module,
    value: Sequence[Any],
    device: torch.device,
    salt: int,
    *,
    wide: bool = False,
) -> list[torch.Tensor] | None:
    """Run the reference forward and backward; None where no output has a gradient."""
    leaves: list[torch.Tensor] = []

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        own = tensor.to(device, copy=True)
        if not own.is_floating_point():
            return own
        leaves.append((own.double() if wide else own).requires_grad_())
        # An operation in place on a leaf is refused by autograd; on this view of it, it is not.
        return leaves[-1].view_as(leaves[-1])

    arguments = raw.map_tensors(list(value), leaf)
    parameters = [p.requires_grad_() for p in model.parameters() if p.is_floating_point()]
    default = torch.get_default_dtype()
    try:
        if wide:
            torch.set_default_dtype(torch.float64)
        with torch.enable_grad(), switches.strict():
            outputs = raw.tensors_in(model(*arguments))
            return pull_back(outputs, [*leaves, *parameters], salt)
    finally:
        torch.set_default_dtype(default)
