"""Every hook is documented, and the manager and the isolation keep a bad plugin to itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from kernelpro import Detector, Kernel, Metric, Profile, hookimpl
from kernelpro.errors import PluginError, SettingsError
from kernelpro.isolation import Hooks
from kernelpro.manager import create_plugin_manager
from kernelpro.search.policy import by_name, describe, restore
from kernelpro.search.tree import Tree
from tests.search.toy import step

MANAGER, _ = create_plugin_manager(entry_points=False)
HOOKS = dict(vars(MANAGER.hook))
DOCS = Path(__file__).parents[1] / "docs" / "plugin_hooks.md"


@pytest.mark.parametrize("name", HOOKS)
def test_hook_is_documented_with_its_arguments(name):
    assert f"## {name}({', '.join(HOOKS[name].spec.argnames)})\n" in DOCS.read_text()


def test_blocked_plugin_is_not_registered():
    manager, _ = create_plugin_manager(block=["detect_memory"], entry_points=False)
    assert not manager.has_plugin("detect_memory")


def test_blocking_an_unknown_plugin_names_the_known_ones():
    words = r"no plugin is called 'nosuch'; there are collect_counters"
    with pytest.raises(PluginError, match=words):
        create_plugin_manager(block=["nosuch"], entry_points=False)


def hooks_with(*plugins):
    manager, _ = create_plugin_manager(builtins=False, entry_points=False)
    for number, plugin in enumerate(plugins):
        manager.register(plugin, name=f"plugin{number}")
    return Hooks(manager)


class Raises:
    @hookimpl
    def detectors(self):
        raise RuntimeError("broken\nsecond line")

    @hookimpl
    def collect_metrics(self, names):
        raise ValueError

    @hookimpl
    def reward(self, sol_us):
        return float("nan")


class Works:
    @hookimpl
    def detectors(self):
        yield Detector(name="one", level="kernel", needs=(), diagnose=lambda evidence: None)

    @hookimpl
    def collect_metrics(self, names):
        return {name: Metric(value=1.0) for name in names}

    @hookimpl
    def reward(self, sol_us):
        return 2.0


@pytest.mark.parametrize("order", [(Raises, Works), (Works, Raises)])
def test_plugin_that_raises_is_named_once_and_the_others_are_heard(order):
    hooks = hooks_with(*(plugin() for plugin in order))
    for _ in range(2):
        assert [detector.name for _, detector in hooks.detectors()] == ["one"]
        profile = hooks.collect(None, None, None, frozenset({"a"}), None)
        assert profile == Profile(metrics={"a": Metric(value=1.0)})
        assert hooks.reward(None, None, 0.0) == 2.0
    bad = f"plugin{order.index(Raises)}"
    assert any(
        c == f"plugin {bad!r} (registered by the caller) raised RuntimeError: broken in its hook "
        "detectors; it is not asked again in this run"
        for c in hooks.complaints
    )
    assert len(hooks.complaints) == len(set(hooks.complaints))


class TellsKernelsApart:
    def __init__(self, **metrics):
        self.metrics = {name: Metric(value=value) for name, value in metrics.items()}

    @hookimpl
    def collect_metrics(self, names):
        return Profile(kernels=(Kernel(name="k", share=0.5, metrics=self.metrics),))


def test_a_kernels_metrics_are_joined_over_collectors_and_only_numbers_get_through():
    hooks = hooks_with(
        TellsKernelsApart(b=2.0, c=float("inf")), TellsKernelsApart(a=1.0, b=float("nan"))
    )
    (kernel,) = hooks.collect(None, None, None, frozenset({"a"}), None).kernels
    assert {name: metric.value for name, metric in kernel.metrics.items()} == {"a": 1.0, "b": 2.0}


def test_second_detector_of_one_name_is_left_out_with_a_sentence():
    hooks = hooks_with(Works(), Works())
    assert len(hooks.detectors()) == 1
    assert "has one of that name" in hooks.complaints[0]


def test_search_without_a_reward_plugin_says_which_one_is_missing():
    with pytest.raises(PluginError, match="reward_speedup"):
        hooks_with().reward(None, None, 0.0)


@dataclass(frozen=True)
class Deepest:
    name: ClassVar[str] = "deepest"
    least: int = 0

    def select(self, tree):
        return max((n for n in tree if not n.closed), key=lambda n: n.depth, default=None)


class Policies:
    @hookimpl
    def policies(self):
        return [Deepest]


class NoPolicies:
    @hookimpl
    def policies(self):
        return ["mcts"]


def test_a_policy_of_a_plugin_is_chosen_by_its_name_and_restored_with_its_settings():
    hooks = hooks_with(Policies(), NoPolicies(), Policies())
    found = hooks.policies()
    assert found == [Deepest]
    policy = by_name("deepest", {"least": 2}, found)
    assert policy == Deepest(least=2)
    assert restore(describe(policy), found) == policy
    tree = Tree([step(0, None), step(1, 0), step(2, 1)])
    assert policy.select(tree) is tree[2]
    (complaint,) = hooks.complaints
    assert "gave 'mcts', which is no frozen dataclass with a name" in complaint


def test_a_policy_cannot_take_the_name_of_a_built_in_one():
    @dataclass(frozen=True)
    class Mine(Deepest):
        name: ClassVar[str] = "mcts"

    assert by_name("mcts", others=[Mine]).name == "mcts"
    assert not isinstance(by_name("mcts", others=[Mine]), Mine)
    with pytest.raises(SettingsError, match="choose one of deepest, mcts"):
        by_name("nosuch", others=[Deepest])
