"""Judges whether a candidate computes the same function: every reply is checked, none believed."""

import math
import mmap
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelpro.judge import raw
from kernelpro.judge.inputs import Bank, shuffled
from kernelpro.judge.numerics import Expected, Mismatch, compare
from kernelpro.judge.settings import JudgeSettings
from kernelpro.judge.workers import WorkerProcess
from kernelpro.records import Check

LEAST_PER_SET = 2  # calls on each set, however slow the candidate is
KEPT_BYTES = 2 << 30  # accepted outputs kept, so that equal ones need no second comparison


@dataclass(slots=True)
class Findings:
    """What the comparisons of one candidate showed so far.

    Attributes:
        reasons: why it is rejected, machine-readable; empty while it is right.
        message: the same in words, with the largest mismatch.
        flags: reasons that make it right but not a headline.
        words: the same in words.
        checks: the worst comparison for each input set and output.
        calls: how many calls' outputs were compared.
    """

    reasons: list[str] = field(default_factory=list)
    message: str = ""
    flags: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    checks: dict[tuple[str, int], Check] = field(default_factory=dict)
    calls: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong so far."""
        return not self.reasons

    def reject(self, reason: str, message: str) -> None:
        """Note why the candidate is wrong; the first message stands."""
        self.message = self.message or message
        if reason not in self.reasons:
            self.reasons.append(reason)

    def flag(self, reason: str, words: str) -> None:
        """Note what makes it right but not a headline."""
        if reason not in self.flags:
            self.flags.append(reason)
            self.words.append(words)

    def note(self, check: Check) -> None:
        """Keep the worst check of its kind."""
        key = (check.inputs, check.output)
        old = self.checks.get(key)
        if old is None or not check.ok or check.rms_error > old.rms_error:
            self.checks[key] = check


def note_memory(reply: Mapping[str, Any], bank: Bank, findings: Findings) -> None:
    """Flag outputs that have no memory of their own where the reference's do.

    An output may have any strides, but each of its elements must have its own place, and the
    caller's input must stay the caller's; an earlier result that a later call changes shows
    elsewhere.
    """
    wanted = bank.expected(True)[0]
    for n, (about, expected) in enumerate(zip(reply["tensors"], wanted, strict=True)):
        strides, shares = about.get("stride"), about.get("inputs")
        if (
            isinstance(strides, list)
            and len(strides) == len(expected.shape)
            and any(st == 0 and size > 1 for st, size in zip(strides, expected.shape, strict=True))
            and not bank.expands[n]
        ):
            findings.flag("expanded_output", f"output {n} repeats elements instead of holding them")
        if isinstance(shares, list) and not set(map(str, shares)) <= set(map(str, bank.shares[n])):
            findings.flag("aliases_input", f"output {n} lies in the memory of an input")


def form_error(reply: Mapping[str, Any], bank: Bank, device: str) -> tuple[str, str] | None:
    """Check containers, types, shapes, devices as claimed; a reason and a sentence, or None."""
    wanted = bank.expected(True)[0]
    if reply.get("outline") != bank.outline:
        return "arity", (
            f"forward must return {_outline_words(bank.outline)}, but returned "
            f"{_outline_words(reply.get('outline'))}"
        )
    described = reply.get("tensors")
    if not isinstance(described, list) or len(described) != len(wanted):
        return "arity", f"forward must return {len(wanted)} tensors"
    for n, (about, expected) in enumerate(zip(described, wanted, strict=True)):
        if not isinstance(about, dict) or about.get("exact") is not True:
            kind = str(about.get("type") if isinstance(about, dict) else about)[:60]
            return "type", f"output {n} must be a plain torch.Tensor, but is a changed {kind}"
        if about.get("dtype") != raw.dtype_name(expected.dtype):
            return "dtype", (
                f"output {n} must be {raw.dtype_name(expected.dtype)}, "
                f"but is {str(about.get('dtype'))[:30]}"
            )
        if about.get("shape") != list(expected.shape):
            return "shape", (
                f"output {n} must have shape {list(expected.shape)}, "
                f"but has {str(about.get('shape'))[:80]}"
            )
        if about.get("layout", "torch.strided") != "torch.strided":
            return "layout", (
                f"output {n} must be an ordinary strided tensor, but is "
                f"{str(about.get('layout'))[:30]}"
            )
        if about.get("device") != device:
            return "device", (
                f"output {n} must be on {device}, but is on {str(about.get('device'))[:20]}"
            )
    return None


def _outline_words(outline: Any) -> str:
    if outline == "tensor":
        return "one tensor"
    if isinstance(outline, list):
        return f"{len(outline)} values in a tuple or list"
    return str(outline)[:120]


def read_outputs(out: mmap.mmap | torch.Tensor, expected: list[Expected]) -> list[torch.Tensor]:
    """View the outputs in a worker's output block, taken to be as expected."""
    outputs, offset = [], 0
    for each in expected:
        count = math.prod(each.shape)
        outputs.append(raw.take(out, (offset, raw.dtype_name(each.dtype), (count,), (1,))))
        offset += raw.aligned(count * each.dtype.itemsize)
    return outputs


def compare_outputs(
    outputs: list[torch.Tensor], expected: list[Expected], name: str, findings: Findings
) -> None:
    """Compare one call's outputs and note what was found."""
    findings.calls += 1
    for n, (found, each) in enumerate(zip(outputs, expected, strict=True)):
        check, mismatch = compare(found, each, inputs=name, output=n)
        findings.note(check)
        if mismatch is not None:
            findings.reject("wrong_result", _mismatch_words(check, mismatch))


def _mismatch_words(check: Check, mismatch: Mismatch) -> str:
    return (
        f"wrong result on {check.inputs} inputs, output {check.output}: {check.note}; the largest "
        f"mismatch is at {list(mismatch.index)}: expected {mismatch.expected:.7g}, found "
        f"{mismatch.found:.7g} (rms error {check.rms_error:.1e} of the output's rms, "
        f"limit {check.rms_limit:.1e})"
    )


def judge_calls(
    worker: WorkerProcess,
    bank: Bank,
    perturbed: bool,
    settings: JudgeSettings,
    *,
    trusted: bool = False,
) -> Findings:
    """Call a candidate on every input set, several times in random order; compare all outputs.

    Args:
        worker: holds the module and the inputs.
        bank: the inputs, and what the outputs must be.
        perturbed: whether the module has taken the perturbed parameters.
        settings: numbers of calls, and deadlines.
        trusted: it is the reference, whose earlier results a CUDA graph may overwrite.

    Raises:
        Failure: its worker failed.
    """
    findings = Findings()
    forms = bank.expected(perturbed)
    every = len(bank.sets) * bank.output_bytes
    times = max(1, min(settings.calls_per_set, settings.compare_bytes // max(every, 1)))
    # On a GPU the comparison itself is quicker than looking whether the bytes are known.
    keep = worker.device == "cpu" and times > 1 and every <= KEPT_BYTES
    least = len(bank.sets) * min(times, LEAST_PER_SET)
    began = time.monotonic()
    order = shuffled(len(bank.sets), times)
    accepted: dict[int, list[torch.Tensor]] = {}
    for step, index in enumerate(order):
        deadline = settings.call_deadline_s if step else settings.first_call_deadline_s
        reply = worker.channel.request(
            "call", deadline, set=index, give_back=bank.is_large and bank.on_device
        )
        if problem := form_error(reply, bank, worker.device):
            findings.reject(*problem)
            return findings
        mutated = reply.get("mutated")
        if mutated and not (
            isinstance(mutated, list) and set(map(str, mutated)) <= set(map(str, bank.mutates))
        ):
            findings.reject("mutated_input", f"forward changed its input {str(mutated)[:40]}")
            return findings
        note_memory(reply, bank, findings)
        outputs = read_outputs(worker.out, forms[index])
        _compare_unless_known(
            outputs,
            bank.expected_of(index, perturbed),
            bank.sets[index].name,
            accepted,
            index,
            findings,
            keep=keep,
        )
        bank.give_back()  # a later call needs the memory that comparing took
        if not findings.ok:
            return findings
        if not trusted and step in (1, least - 1) and order[step - 1] != index:
            earlier = bank.expected_of(order[step - 1], perturbed)
            _check_earlier(worker, bank, order[step - 1], earlier, accepted, findings, settings)
            del earlier
            bank.give_back()
        if step + 1 >= least and time.monotonic() - began > settings.max_judging_s:
            break
    return findings


def _compare_unless_known(
    outputs: list[torch.Tensor],
    expected: list[Expected],
    name: str,
    accepted: dict[int, list[torch.Tensor]],
    index: int,
    findings: Findings,
    *,
    keep: bool,
) -> None:
    """Compare, unless the bytes equal an output that was right on the same set."""
    known = accepted.get(index)
    if known is not None and all(raw.same_bytes(a, b) for a, b in zip(outputs, known, strict=True)):
        findings.calls += 1
        return
    compare_outputs(outputs, expected, name, findings)
    if findings.ok and keep and known is None:
        accepted[index] = [raw.copied(t, t.device) for t in outputs]


def _check_earlier(
    worker: WorkerProcess,
    bank: Bank,
    index: int,
    expected: list[Expected],
    accepted: dict[int, list[torch.Tensor]],
    findings: Findings,
    settings: JudgeSettings,
) -> None:
    """Fetch the result of the call before the last one again: a later call must not change it."""
    reply = worker.channel.request("fetch", settings.call_deadline_s, earlier=True)
    again = Findings()
    if form_error(reply, bank, worker.device) is None:
        outputs = read_outputs(worker.out, expected)
        _compare_unless_known(
            outputs, expected, bank.sets[index].name, accepted, index, again, keep=False
        )
        if again.ok:
            return
    findings.flag("reused_output_buffer", "a later call overwrites the result of an earlier one")
