"""Put a role's prompt together, within its token limit, and say what was left out for that.

`DROPPED_FIRST` is the whole order: a part is left out only when all before it already are. Parts
that are not in it are never left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kernelpro.errors import ModelError
from kernelpro.models import exemplars, parts, roles
from kernelpro.models.exchange import Message, Request, Tool, estimate_tokens
from kernelpro.models.settings import ModelSettings
from kernelpro.models.windows import window
from kernelpro.records import Outcome, Proposal

DROPPED_FIRST = (
    *("other_sources", "exemplars", "discoveries", "lessons", "worth", "others", "siblings"),
    *("failed", "best"),
)

SHARED = ("rules", "machine", "problem")
OWN = (
    "parent",
    "result",
    "headroom",
    "findings",
    "exemplars",
    "worth",
    "lessons",
    "discoveries",
    "best",
    "failed",
    "siblings",
    "others",
    "other_sources",
    "evidence",
    "instruction",
    "direction",
)
HEADINGS = {
    "findings": "Findings of the profiler, the most promising first:",
    "exemplars": "Worked kernels for other problems that show what may help here:",
    "worth": "What acting on findings has been worth in this search:",
    "lessons": "What earlier searches of like problems saw of changes:",
    "discoveries": "Files of the sources that were read before a faster candidate:",
    "failed": "What has failed in this search; do not repeat it:",
    "siblings": "What was already tried from this source:",
    "others": "Other nodes of the search:",
    "other_sources": "Their sources:",
    "evidence": "Evidence of the failure:",
    "instruction": "The instruction of the plan:",
}
FAILED = frozenset(
    set(Outcome) - {Outcome.ACCEPTED, Outcome.FLAGGED, Outcome.DUPLICATE, Outcome.UNJUDGED}
)
"""Outcomes of a parent that the debug role is asked about."""


class TooLong(ModelError):
    """A prompt does not fit its limit even with all that may be left out left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a role sees.

    Attributes:
        role: `plan`, `code` or `debug`.
        form: name of the template: the role, or `single`.
        shared: blocks that are the same in every prompt of the search.
        own: the rest, what siblings share before what they do not.
        parts: text of each part, those left out and empty ones not among them.
        dropped: names of parts that were left out for the limit.
        limit: estimated tokens that it may have.
    """

    role: str
    form: str
    shared: tuple[str, ...]
    own: tuple[str, ...]
    parts: Mapping[str, str]
    dropped: tuple[str, ...]
    limit: int

    @property
    def tokens(self) -> Mapping[str, int]:
        """Estimated tokens by part."""
        return {name: estimate_tokens(text) for name, text in self.parts.items()}

    @property
    def total(self) -> int:
        """Estimated tokens of the whole prompt."""
        return sum(map(estimate_tokens, (*self.shared, *self.own)))

    def request(
        self,
        settings: ModelSettings,
        more: tuple[Message, ...] = (),
        *,
        lookups: tuple[Tool, ...] = (),
        free: bool = False,
    ) -> Request:
        """The request that asks it.

        Args:
            settings: limits.
            more: the turns that follow.
            lookups: tools to look things up with: the same for all prompts of a search, so that
                a provider's cache holds.
            free: whether something may be looked up now.
        """
        return Request(
            role=self.role,
            shared=self.shared,
            messages=(Message(role="user", parts=self.own), *more),
            tools=roles.TOOLS + lookups,
            tool=roles.FORM[self.form].name,
            free=free,
            max_tokens=settings.max_answer(self.role),
            temperature=settings.temperature(self.role),
        )


def check_templates() -> None:
    """Read every template once.

    Raises:
        SettingsError: one of the user's is not right.
    """
    roles.places("shared.txt", frozenset(SHARED))
    for form in roles.FORM:
        roles.places(f"{form}.txt", frozenset(OWN))


def first_role(proposal: Proposal, workflow: str) -> str:
    """Which template a proposal begins with: `debug`, `plan` or `single`."""
    if proposal.evaluation.outcome in FAILED and proposal.node != 0:
        return "debug"
    return "single" if workflow == "single" else "plan"


def build(
    form: str,
    proposal: Proposal,
    settings: ModelSettings,
    *,
    direction: str = "",
    instruction: str = "",
) -> Prompt:
    """The prompt of a role.

    Args:
        form: `plan`, `code`, `debug` or `single`.
        proposal: what may be known.
        settings: for the limits.
        direction: where this child is to go, for plan and single.
        instruction: the plan's anchored source and advice, for code.

    Raises:
        TooLong: it does not fit.
        SettingsError: a template of the user's is not right.
    """
    role = "code" if form == "single" else form
    seen = window(
        "plan" if form == "single" else role, proposal.steps, proposal.node, proposal.seed
    )
    texts = {
        "rules": roles.template(f"rules.{proposal.problem.target}.txt").strip(),
        "machine": parts.machine(proposal),
        "problem": parts.problem(proposal),
        "parent": parts.parent(proposal),
        "result": parts.result(proposal),
        "headroom": parts.headroom(proposal),
        "findings": parts.findings(proposal),
        "exemplars": exemplars.text(exemplars.chosen(proposal), sources=form in ("code", "single")),
        "worth": parts.worth(proposal),
        "lessons": parts.lessons(proposal),
        "discoveries": parts.discoveries(proposal),
        "best": parts.best(proposal) if proposal.steps else "",
        "failed": parts.failed(proposal),
        "siblings": parts.siblings(proposal),
        "others": parts.others(seen),
        "other_sources": parts.other_sources(seen),
        "evidence": parts.failure_evidence(proposal) if form == "debug" else "",
        "instruction": instruction,
        "direction": direction,
    }
    limit = settings.max_prompt(role)
    for count in range(len(DROPPED_FIRST) + 1):
        without = DROPPED_FIRST[:count]
        kept = {name: "" if name in without else text for name, text in texts.items()}
        shared, named = _fill("shared.txt", kept, SHARED)
        own, more = _fill(f"{form}.txt", kept, OWN)
        blocks = {**named, **more}
        prompt = Prompt(
            role=role,
            form=form,
            shared=shared,
            own=own,
            parts={name: text for name, text in blocks.items() if text},
            dropped=tuple(name for name in without if texts[name]),
            limit=limit,
        )
        if prompt.total <= limit:
            return prompt
    raise TooLong(
        f"the prompt of role {role} has about {prompt.total} tokens with all left out that may be, "
        f"but {limit} are allowed; raise [models] {role}_prompt_tokens"
    )


def beyond(fuller: Prompt, shown: Prompt) -> str:
    """What one prompt says that another of the same role and parent does not; may be empty."""
    more = [text for name, text in fuller.parts.items() if text != shown.parts.get(name)]
    return "\n".join(more)


def _fill(
    name: str, texts: Mapping[str, str], known: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """A template's blocks, parted at `---`, and the text of each part that it has.

    What the template says itself counts as the part `instructions of NAME`.
    """
    blocks: list[list[str]] = [[]]
    own: list[str] = []
    used: dict[str, str] = {}
    for text, is_part in roles.places(name, frozenset(known)):
        if not is_part and text.strip() == "---":
            blocks.append([])
        elif not is_part:
            own.append(text)
            blocks[-1].append(text)
        elif part := texts[text]:
            used[text] = f"{HEADINGS[text]}\n{part}" if text in HEADINGS else part
            blocks[-1].append(used[text] + "\n")
    filled = tuple(text for block in blocks if (text := "\n".join(block).strip()))
    return filled, {f"template {name}": "\n".join(own).strip(), **used}
