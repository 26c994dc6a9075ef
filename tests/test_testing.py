"""The contract that `kernelpro.testing` holds plugins to, and that the built-in ones keep it."""

import types
from dataclasses import replace

import pytest

import kernelpro
from kernelpro import Action, Diagnosis, manager
from kernelpro.testing import ContractBroken, check_detector, check_plugin, evidence


@kernelpro.detector(level="kernel", needs=("a",), wants=("b",), threshold="> 0.5 (own)")
def sound(seen):
    """A metric is high."""
    if seen.profile["a"] <= 0.5:
        return None
    action = Action(name="fuse", instruction="Join them.")
    return Diagnosis(bottleneck="a is high", why="So it is.", gain=0.5, actions=(action,))


def module(**members):
    made = types.ModuleType("made")
    vars(made).update(members)
    return made


@kernelpro.hookimpl
def detectors():
    return [sound]


def test_a_sound_plugin_passes_and_gives_its_detectors():
    assert check_plugin(module(detectors=detectors)) == [sound]
    assert sound.summary == "A metric is high."


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "Has Spaces"}, "lower_case"),
        ({"level": "file"}, "level"),
        ({"targets": ()}, "no target"),
        ({"targets": ("tpu",)}, "targets"),
        ({"classes": ("slow",)}, "classes"),
        ({"needs": ()}, "no metric"),
        ({"threshold": ""}, "cut"),
        ({"wants": ("a",)}, "both needs and wants"),
        ({"diagnose": lambda: None}, "evidence alone"),
        ({"diagnose": lambda e: 1 / e.profile["a"]}, "ZeroDivisionError"),
        ({"diagnose": lambda e: e.profile["c"]}, "MissingMetric"),
        ({"diagnose": lambda e: "slow"}, "'s'"),
        ({"diagnose": lambda e: [None]}, "None"),
        ({"diagnose": lambda e: Diagnosis(bottleneck="", why="y", gain=0)}, "bottleneck"),
        ({"diagnose": lambda e: Diagnosis(bottleneck="x", why="y", gain=0.5)}, "no action"),
    ],
)
def test_a_broken_detector_is_told_what_is_wrong(changes, words):
    with pytest.raises(ContractBroken, match=words):
        check_detector(replace(sound, **changes))


def test_a_plugin_without_hooks_or_with_wrong_arguments_is_told_so():
    with pytest.raises(ContractBroken, match="implements no hook"):
        check_plugin(module())

    @kernelpro.hookimpl
    def reject(problem, colour):
        return None

    with pytest.raises(ContractBroken, match="colour"):
        check_plugin(module(reject=reject))


@pytest.mark.parametrize("name", [n for n in manager.BUILTIN_PLUGINS if "detect_" in n])
def test_built_in_detectors_keep_the_contract(name):
    assert check_plugin(name)


def test_evidence_holds_what_it_was_given():
    made = evidence({"a": 1.0}, notes={"a": "kernel.cu:3"}, target="cpu")
    assert made.profile["a"] == 1.0
    assert made.profile.note("a") == "kernel.cu:3"
    assert made.machine.target == "cpu"
