"""The Python interface, as its documentation shows it."""

import subprocess
import sys
from pathlib import Path

import pytest

import kernelpro
from kernelpro.api import replay

GOLDEN = Path(__file__).parent / "golden" / "toy.v1.jsonl"


@pytest.mark.parametrize(
    "first",
    ["import kernelpro", "import kernelpro.search.tree", "from kernelpro.api import replay"],
)
def test_search_can_be_called_whatever_was_imported_first(first):
    code = (
        f"{first}\nimport kernelpro\n"
        "try:\n    kernelpro.search('nosuch', target='cpu')\n"
        "except kernelpro.KernelproError as error:\n    print(error)\n"
        "import kernelpro.search.memory\nkernelpro.search.memory.read\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "nosuch" in done.stdout


@pytest.mark.parametrize("name", kernelpro.__all__)
def test_every_public_name_can_be_had(name):
    assert getattr(kernelpro, name) is not None


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nosuch"):
        kernelpro.nosuch  # noqa: B018  # reading it is the test


def test_replay_gives_a_table_with_a_row_for_each_step():
    result = replay(GOLDEN)
    table = result.table()
    assert list(table["index"]) == [step.index for step in result.steps]
    assert set(table.columns) >= {"parent", "outcome", "speedup", "reward", "finding"}
    assert result.summary.headline
