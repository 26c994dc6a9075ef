"""The example plugin with its own collector, tested as its author would."""

import importlib.util
from pathlib import Path

import pytest

from kernelpro.errors import JudgeError
from kernelpro.testing import check_plugin, evidence

FILE = Path(__file__).parents[2] / "plugin_examples/kernelpro-huge-pages/kernelpro_huge_pages.py"


@pytest.fixture
def plugin():
    spec = importlib.util.spec_from_file_location(FILE.stem, FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Session:
    """Runs the collector's function here, or fails like a candidate's process that died."""

    def __init__(self, plugin, path, target="cpu"):
        self.plugin, self.path, self.target = plugin, path, target

    def collect(self, function, arguments):
        if self.path is None:
            raise JudgeError("the candidate's process has ended")
        name = function.partition(":")[2]
        return getattr(self.plugin, name)(lambda: None, path=str(self.path))


def test_it_keeps_the_contract(plugin):
    assert [d.name for d in check_plugin(plugin)] == ["small_pages"]


def test_a_large_working_set_in_small_pages_is_seen_and_in_huge_ones_is_not(plugin):
    small = {plugin.RESIDENT: 1e9, plugin.HUGE: 0.0}
    assert plugin.small_pages.diagnose(evidence(small, target="cpu"))
    assert plugin.small_pages.diagnose(evidence(small | {plugin.HUGE: 9e8}, target="cpu")) is None


def test_the_collector_reads_what_the_kernel_says(plugin, tmp_path):
    rollup = tmp_path / "smaps_rollup"
    rollup.write_text("Rss: 900 kB\nAnonymous: 800 kB\nAnonHugePages: 200 kB\n")
    names = frozenset({plugin.HUGE, plugin.RESIDENT})
    found = plugin.collect_metrics(names, Session(plugin, rollup))
    assert {n: m.value for n, m in found.items()} == {
        plugin.RESIDENT: 800 * 1024,
        plugin.HUGE: 200 * 1024,
    }
    assert plugin.collect_metrics(frozenset({"other"}), Session(plugin, rollup)) == {}


@pytest.mark.parametrize("text", [None, "", "Rss: 1 kB"])
def test_what_cannot_be_read_is_absent_with_a_reason(plugin, tmp_path, text):
    rollup = tmp_path / "smaps_rollup"
    rollup.write_text(text or "")
    session = Session(plugin, rollup if text is not None else None)
    found = plugin.collect_metrics(frozenset({plugin.HUGE}), session)
    assert all(m.value is None and m.note for m in found.values())
    assert len(found) == 2
