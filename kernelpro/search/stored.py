"""Steps that stay in their memory file: what a tree needs is at hand, the rest is read when used.

A `StoredStep` is a `Step` and equals the one that was written. A file of 100,000 steps is larger
than the memory that reading it may take; a tree of its stored steps is not.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, NamedTuple, cast, get_type_hints

from kernelpro.records import (
    AtShape,
    Build,
    Candidate,
    Classification,
    Compiled,
    Diagnosis,
    Energy,
    Evaluation,
    Outcome,
    Profile,
    Step,
    Verdict,
)
from kernelpro.search.packing import Entry, reader

REST = ("candidate", "evaluation", "profile", "classification", "diagnoses", "phases_s")
"""Fields of a step that are read when they are used; any other is at hand."""

AT_HAND = frozenset({"outcome", "timing"})
"""Fields of a step's evaluation that are at hand all the same; so is its candidate's id."""

KEPT_PARSED = 32
"""So many steps' rests stay parsed. Own choice: enough for a step, its parent and its siblings."""

_STEP = get_type_hints(Step)
_EVALUATION = get_type_hints(Evaluation)


class Lines:
    """The lines of one file, from which stored steps read.

    Attributes:
        shared: the file's shared entries.
    """

    def __init__(self, parse_rest: Callable[[int, int, int], Any], shared: Sequence[Entry]) -> None:
        """Read with a function from a line's number, offset and length to its rest, packed."""
        self.shared = shared
        self._parse_rest = parse_rest
        self._parsed: OrderedDict[int, Any] = OrderedDict()

    def rest(self, number: int, offset: int, length: int) -> Any:
        """The rest of a step by field, packed."""
        found = self._parsed.get(number)
        if found is None:
            found = self._parsed[number] = self._parse_rest(number, offset, length)
            if len(self._parsed) > KEPT_PARSED:
                self._parsed.popitem(last=False)
        return found


class Place(NamedTuple):
    """Where a step's line is: its number in the file, and its bytes."""

    lines: Lines
    number: int
    offset: int
    length: int

    def field(self, name: str, empty: Any) -> Any:
        """A field of the step; `empty` where the line leaves it out."""
        value = self.lines.rest(*self[1:]).get(name)
        return empty if value is None else reader(_STEP[name])(value, self.lines.shared)

    def evaluation(self) -> dict[str, Any]:
        """The fields of the step's evaluation that are not at hand; empty ones are left out."""
        packed, shared = self.lines.rest(*self[1:]).get("evaluation", {}), self.lines.shared
        if isinstance(packed, list):
            packed = dict(zip(shared[packed[0]], packed[1:], strict=True))
        return {name: reader(_EVALUATION[name])(item, shared) for name, item in packed.items()}


class StoredCandidate(Candidate):
    """A candidate whose id is at hand."""

    __slots__ = ("_id", "_place")
    _id: str
    _place: Place

    def __new__(cls, **values: Any) -> Any:
        """Make a plain record; `dataclasses.replace` calls this."""
        return Candidate(**values)

    @property
    def whole(self) -> Candidate:
        """The same as a plain record."""
        return cast(Candidate, self._place.field("candidate", None))

    @property
    def id(self) -> str:
        """First 12 hex digits of the source's SHA-256."""
        return self._id

    @property
    def source(self) -> str:
        """The file's text."""
        return self.whole.source

    @property
    def language(self) -> str:
        """What its kernels are written in."""
        return self.whole.language

    @property
    def rationale(self) -> str:
        """Why its author expects it to be faster."""
        return self.whole.rationale

    @property
    def author(self) -> str:
        """Name of the plugin or model that wrote it."""
        return self.whole.author

    @property
    def inspired_by(self) -> str:
        """Name of the detector whose finding it acts on, or empty."""
        return self.whole.inspired_by

    @property
    def strategy(self) -> str:
        """Short name of what was changed, or empty."""
        return self.whole.strategy

    def __eq__(self, other: object) -> bool:
        return self.whole == (other.whole if isinstance(other, StoredCandidate) else other)

    def __hash__(self) -> int:
        return hash(self.whole)

    def __reduce__(self) -> Any:
        return _itself, (self.whole,)


class StoredEvaluation(Evaluation):
    """An evaluation of which outcome and timing are at hand."""

    __slots__ = ("_place",)
    _place: Place

    def __new__(cls, **values: Any) -> Any:
        """Make a plain record; `dataclasses.replace` calls this."""
        return Evaluation(**values)

    @property
    def whole(self) -> Evaluation:
        """The same as a plain record."""
        return Evaluation(outcome=self.outcome, timing=self.timing, **self._place.evaluation())

    @property
    def message(self) -> str:
        """The reason in one or two sentences."""
        return self.whole.message

    @property
    def build(self) -> Build | None:
        """What compiling gave."""
        return self.whole.build

    @property
    def verdict(self) -> Verdict | None:
        """The judge's word."""
        return self.whole.verdict

    @property
    def energy(self) -> Energy | None:
        """Energy of a call."""
        return self.whole.energy

    @property
    def phases_s(self) -> Mapping[str, float]:
        """Wall seconds by phase."""
        return self.whole.phases_s

    @property
    def shapes(self) -> tuple[AtShape, ...]:
        """What became of it at each shape of a mix."""
        return self.whole.shapes

    @property
    def compiled(self) -> tuple[Compiled, ...]:
        """What torch.compile made of the baseline."""
        return self.whole.compiled

    def __eq__(self, other: object) -> bool:
        return self.whole == (other.whole if isinstance(other, StoredEvaluation) else other)

    def __hash__(self) -> int:
        return hash(self.whole)

    def __reduce__(self) -> Any:
        return _itself, (self.whole,)


class StoredStep(Step):
    """A step of which all is at hand but the fields named in `REST`."""

    __slots__ = ("_place",)
    _place: Place

    def __new__(cls, **values: Any) -> Any:
        """Make a plain record; `dataclasses.replace` calls this."""
        return Step(**values)

    @property
    def whole(self) -> Step:
        """The same as a plain record, which needs the file no more."""
        values = {field.name: getattr(self, field.name) for field in fields(Step)}
        values["candidate"] = self.candidate.whole  # type: ignore[attr-defined]
        values["evaluation"] = self.evaluation.whole  # type: ignore[attr-defined]
        return Step(**values)

    @property
    def profile(self) -> Profile:
        """The candidate's metrics."""
        return cast(Profile, self._place.field("profile", Profile()))

    @property
    def classification(self) -> Classification | None:
        """Where it stands on the roofline."""
        return cast("Classification | None", self._place.field("classification", None))

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """Findings, most promising first."""
        return cast("tuple[Diagnosis, ...]", self._place.field("diagnoses", ()))

    @property
    def phases_s(self) -> Mapping[str, float]:
        """Wall seconds by phase."""
        return cast("Mapping[str, float]", self._place.field("phases_s", {}))

    def __eq__(self, other: object) -> bool:
        return self.whole == (other.whole if isinstance(other, StoredStep) else other)

    def __hash__(self) -> int:
        return hash(self.whole)

    def __reduce__(self) -> Any:
        return _itself, (self.whole,)


def stored(place: Place, light: Mapping[str, Any]) -> StoredStep:
    """Make a step whose fields at hand are those of its line.

    Args:
        place: where the rest is.
        light: the fields that are no part of the rest, with the candidate's `id` and the
            evaluation's `outcome` and `timing`, packed.

    Raises:
        ValueError: a value does not fit its field, or a field is unknown.
        KeyError: a field is missing.
    """
    shared, put = place.lines.shared, object.__setattr__
    if unknown := light.keys() - _KNOWN:
        raise ValueError(f"Step has no field {sorted(unknown)}")
    candidate: StoredCandidate = object.__new__(StoredCandidate)
    put(candidate, "_id", _ID(light["id"], shared))
    put(candidate, "_place", place)
    evaluation: StoredEvaluation = object.__new__(StoredEvaluation)
    put(evaluation, "outcome", Outcome(light["outcome"]))
    put(evaluation, "timing", _TIMING(light.get("timing"), shared))
    put(evaluation, "_place", place)
    step: StoredStep = object.__new__(StoredStep)
    put(step, "candidate", candidate)
    put(step, "evaluation", evaluation)
    put(step, "_place", place)
    for name, default in _DEFAULTS:
        if name not in light:
            put(step, name, default)
    for name, value in light.items():
        if name in _LIGHT:
            put(step, name, _LIGHT[name][0](value, shared))
    return step


def _itself(record: Any) -> Any:
    return record


def _light_fields() -> dict[str, tuple[Any, Any]]:
    """How each field at hand is read, and what it is where a line leaves it out."""
    found = {}
    for field in fields(Step):
        if field.name not in REST:
            default = None if field.name == "parent" else field.default
            if field.name == "index":
                default = 0
            elif default is MISSING and field.default_factory is not MISSING:
                default = field.default_factory()
            found[field.name] = (reader(_STEP[field.name]), default)
    return found


_LIGHT = _light_fields()
_DEFAULTS = tuple((name, default) for name, (_, default) in _LIGHT.items())
_KNOWN = frozenset(_LIGHT) | AT_HAND | {"id"}
_TIMING = reader(_EVALUATION["timing"])
_ID = reader(str)
