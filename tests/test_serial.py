import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelpro.records import (
    Action,
    Build,
    Candidate,
    Check,
    Classification,
    Confirmation,
    Diagnosis,
    Energy,
    Evaluation,
    Launch,
    Machine,
    Metric,
    Outcome,
    Problem,
    Profile,
    Step,
    TensorSpec,
    Timing,
    Verdict,
)
from kernelpro.serial import decode, encode

FLOATS = st.floats(allow_nan=False)
SHARES = st.floats(min_value=0, max_value=1)


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    name: str
    ratio: float = 1.0
    count: int = 0
    sure: bool = False
    colour: Colour = Colour.RED
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (0, "")
    named: Mapping[str, Inner] = field(default_factory=dict)
    anything: Any = None


def through_json(value: Any) -> Any:
    return decode(type(value), json.loads(json.dumps(encode(value))))


def built(cls: type, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A strategy for records whose float fields are never NaN, which does not equal itself."""
    floats = {name: FLOATS for name, hint in get_type_hints(cls).items() if hint is float}
    return st.builds(cls, **{**floats, **given})


def few(items: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=most).map(tuple)


EVALUATIONS = built(
    Evaluation,
    outcome=st.sampled_from(Outcome),
    message=st.text(),
    build=st.none() | built(Build),
    verdict=st.none() | built(Verdict, checks=few(built(Check))),
    timing=st.none() | built(Timing),
    energy=st.none() | built(Energy),
    phases_s=st.dictionaries(st.text(), FLOATS, max_size=2),
)
METRICS = st.dictionaries(st.text(), built(Metric, value=st.none() | FLOATS), max_size=2)
DIAGNOSES = built(Diagnosis, gain=SHARES, confidence=SHARES, actions=few(built(Action), 3))


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    built(
        Step,
        parent=st.none() | st.integers(0, 99),
        candidate=built(Candidate, rationale=st.text(), author=st.text()),
        evaluation=EVALUATIONS,
        profile=built(Profile, metrics=METRICS, launches=few(built(Launch))),
        classification=st.none() | built(Classification),
        diagnoses=few(DIAGNOSES),
        phases_s=st.dictionaries(st.text(), FLOATS, max_size=2),
        exhausted=few(st.integers(0, 99)),
    )
)
def test_every_step_comes_back_from_json_as_it_was(step):
    back = through_json(step)
    assert back == step
    # Equality of candidates looks at their code alone.
    assert back.candidate.rationale == step.candidate.rationale
    assert back.candidate.author == step.candidate.author


@pytest.mark.parametrize(
    "record",
    [
        Problem(
            name="p",
            origin="bundled",
            source="",
            target="cpu",
            sizes={"rows": 3},
            inputs=(TensorSpec(shape=(2, 3), dtype="int64"),),
        ),
        Machine(target="cpu", device="d", flops_per_s={"float32": 1e12}),
        Confirmation(step=3, evaluation=Evaluation(outcome=Outcome.CRASHED)),
        Outer(name="x", inner=Inner(value=1), pair=(4, "b"), named={"k": Inner(value=2)}),
        Outer(name="x", anything={"deep": [1, 2.5, None, {"er": True}]}),
    ],
    ids=lambda record: type(record).__name__,
)
def test_other_records_come_back_too(record):
    assert through_json(record) == record


def test_a_field_that_an_old_file_lacks_takes_its_default():
    assert decode(Outer, {"name": "x"}) == Outer(name="x")


def test_whole_numbers_are_read_as_floats_where_a_float_is_meant():
    value = decode(Outer, {"name": "x", "ratio": 3})
    assert type(value.ratio) is float


def test_numbers_of_numpy_are_written_as_plain_ones():
    metric = Metric(value=np.float32(0.5))  # type: ignore[arg-type]  # what a plugin may give
    assert json.dumps(encode(metric))
    assert encode({"a": np.int64(3)}) == {"a": 3}
    assert type(encode(np.int64(3))) is int


@pytest.mark.parametrize(
    ("cls", "value", "message"),
    [
        (Outer, {"name": "x", "colour": "blue"}, "'blue' is not a valid Colour"),
        (Outer, {"name": "x", "extra": 1}, r"Outer has no field \['extra'\]"),
        (Outer, [], "Outer must be an object"),
        (Outer, {"name": 3}, "str expected, but found 3"),
        (Outer, {"name": "x", "count": 1.5}, "int expected, but found 1.5"),
        (Outer, {"name": "x", "count": True}, "int expected, but found True"),
        (Outer, {"name": "x", "ratio": True}, "float expected, but found True"),
        (Outer, {"name": "x", "sure": 1}, "bool expected, but found 1"),
        (Outer, {"name": "x", "many": {}}, "must be a list"),
        (Outer, {"name": "x", "pair": [1]}, "must have 2 items, but has 1"),
        (Outer, {"name": "x", "named": []}, "must be an object"),
        (Outer, {"name": "x", "inner": {"value": None}}, "int expected, but found None"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(cls, value, message):
    with pytest.raises(ValueError, match=message):
        decode(cls, value)


def test_a_missing_field_without_default_is_refused():
    with pytest.raises(TypeError, match="name"):
        decode(Outer, {})
