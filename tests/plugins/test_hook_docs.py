import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from kernelpro import Candidate, Profile, hookspecs
from kernelpro.plugins import reward_speedup
from kernelpro.profiling.dispatch import Dispatcher
from tests.profiling.samples import accepted, evidence

TEXT = (Path(__file__).parents[2] / "docs" / "plugin_hooks.md").read_text(encoding="utf-8")
HOOKS = {
    name: list(inspect.signature(function).parameters)
    for name, function in vars(hookspecs).items()
    if hasattr(function, "kernelpro_spec")
}


@pytest.fixture
def shown() -> dict[str, Any]:
    """Names that the page's Python blocks define, run one after the other as a reader would."""
    names: dict[str, Any] = {"__name__": "shown"}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(block, names)
    return names


def test_every_hook_has_a_heading_with_its_exact_arguments():
    assert len(HOOKS) == 8
    for name, arguments in HOOKS.items():
        assert f"## {name}({', '.join(arguments)})\n" in TEXT


def test_every_hook_has_an_example(shown):
    for name in HOOKS:
        assert callable(shown[name])


def test_the_detector_that_is_shown_works(shown):
    made = Dispatcher([("shown", d) for d in shown["detectors"]()])
    seen = {shown["READ"]: 300e6, shown["WRITE"]: 100e6}
    (found,) = made.diagnose(evidence(seen, target="cuda"))
    assert found.gain == pytest.approx(0.75)
    assert made.diagnose(evidence(dict.fromkeys(seen, 50e6), target="cuda")) == ()
    assert made.complaints == []


def test_the_test_that_is_shown_passes(shown):
    shown["test_amplified_traffic_is_seen_and_its_fix_is_not"]()


def test_the_collector_that_is_shown_times_a_call(shown):
    class Session:
        target = "cpu"

        def collect(self, function, arguments):
            return shown[function.partition(":")[2]](lambda: None, **arguments)

    found = Profile(metrics=shown["collect_metrics"](frozenset({shown["NAME"]}), Session()))
    assert found[shown["NAME"]] > 0


def test_the_reward_and_the_gate_that_are_shown_answer(shown):
    assert shown["reward"](accepted(10.0, 20.0)) == pytest.approx(1.0)
    assert shown["reject"](Candidate(source="", language="triton"))
    assert shown["reject"](Candidate(source="", language="cpp")) is None
    assert f"within {reward_speedup.LOWEST:.0f} and {reward_speedup.HIGHEST}" in TEXT
