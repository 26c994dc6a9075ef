"""What a role would see if a search went on from a node, from its memory file alone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernelpro.errors import KernelproError
from kernelpro.models import parts, prompt
from kernelpro.models.exchange import CHARACTERS_PER_TOKEN
from kernelpro.models.roles import FORM
from kernelpro.models.settings import ModelSettings
from kernelpro.models.tape import Tape, beside
from kernelpro.records import Machine, Problem, Proposal, Step
from kernelpro.search import memory
from kernelpro.search.brief import Feedback, brief, step_seed
from kernelpro.search.tree import Tree
from kernelpro.settings import resolve


def proposal(
    problem: Problem,
    machine: Machine,
    steps: Sequence[Step],
    node: int,
    seed: int,
    feedback: Feedback = Feedback.FINDINGS,
) -> Proposal:
    """The proposal of the next candidate from a node.

    Args:
        problem: the search's.
        machine: the search's.
        steps: all steps, in order.
        node: index of the step to go on from.
        seed: of the next step.
        feedback: the search's.

    Raises:
        KernelproError: there is no such node.
    """
    if not 0 <= node < len(steps):
        raise KernelproError(
            f"a node from 0 to {len(steps) - 1} expected, but found {node}; `kernelpro replay` "
            "shows them"
        )
    root = steps[0].classification
    tree = Tree(steps)
    told_of = brief(
        tree,
        tree[node],
        problem=problem,
        machine=machine,
        seed=seed,
        sol_us=root.sol_us if root is not None else 0.0,
        feedback=feedback,
    )
    return replace(told_of, seed=seed)


def text(memory_file: Path, node: int, form: str | None = None) -> str:
    """A node's prompt as it would be sent, and its parts with their estimated tokens.

    Args:
        memory_file: of the search.
        node: index of the step to go on from.
        form: `plan`, `code`, `debug` or `single`; None for the one that would be asked first.

    Raises:
        KernelproError: there is no such search or node, or the prompt does not fit its limit.
    """
    recorded, steps = memory.read(memory_file)
    told_of = proposal(
        recorded.problem,
        recorded.machine,
        steps,
        node,
        step_seed(recorded.seed, len(steps)),
        Feedback(recorded.settings.get("feedback", Feedback.FINDINGS)),
    )
    settings = resolve("models", ModelSettings, recorded.settings.get("models"))
    form = form or prompt.first_role(told_of, settings.workflow)
    ways = parts.directions(told_of)
    built = prompt.build(
        form,
        told_of,
        settings,
        direction=ways[0] if ways else "",
        instruction=_instruction(memory_file, told_of) if form == "code" else "",
    )
    lines = []
    for title, blocks in (("shared", built.shared), ("own", built.own)):
        for number, block in enumerate(blocks, start=1):
            lines += [f"=== {title} {number} of {len(blocks)} ===", block, ""]
    lines.append(
        f"=== role {built.role}, form {FORM[form].name}, about {built.total} of at most "
        f"{built.limit} tokens ==="
    )
    lines += [f"{tokens:8}  {name}" for name, tokens in built.tokens.items()]
    if built.dropped:
        lines.append(f"left out to keep within the limit: {', '.join(built.dropped)}")
    lines.append(
        f"Tokens are estimates: bytes of UTF-8 over {CHARACTERS_PER_TOKEN:g}; what a provider "
        "counts is in the tape."
    )
    return "\n".join(lines)


def _instruction(memory_file: Path, told_of: Proposal) -> str:
    """The latest instruction that the tape has for this parent, or where one would stand."""
    path = beside(memory_file)
    if path.is_file():
        for exchange in reversed(list(Tape(path, writing=False).exchanges)):
            if exchange.parent == told_of.parent.id and exchange.role == "code":
                sent = "\n".join(map(str, exchange.messages[0]["parts"]))
                _, found, rest = sent.partition(f"{prompt.HEADINGS['instruction']}\n")
                if found:
                    advice, _, places = rest.partition("\nMay also change: ")
                    return f"{advice}\nMay also change: {places.splitlines()[0]}"
    return "(the plan's instruction; no plan from this node is on the tape)"
