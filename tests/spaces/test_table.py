"""The file of a recorded space: what is written is read back, and damage is named."""

import gzip

import pytest

from kernelpro.spaces import table
from kernelpro.spaces.table import SpaceError
from tests.spaces import tiny


def test_a_space_survives_its_file_and_the_same_space_gives_the_same_bytes(tmp_path):
    space = tiny.space()
    first, second = tmp_path / f"tiny{table.SUFFIX}", tmp_path / f"again{table.SUFFIX}"
    table.write(first, space.header, space.points.values())
    again = table.read(first)
    assert again == space
    table.write(second, again.header, again.points.values())
    assert second.read_bytes() == first.read_bytes()


def test_a_point_is_as_fast_as_its_median_round_and_noise_is_what_one_round_is_off_by():
    space = tiny.space()
    assert space.best_us == 10.0
    assert space.points[8, 4, 2, "normal"].us == 10.0
    assert 1.0 / 24.0 < space.noise < 1.0 / 10.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: "", "no kernelpro-space header"),
        (lambda text: text.replace("kernelpro-space", "something"), "no kernelpro-space header"),
        (lambda text: text.replace('"version":1', '"version":9'), "format version 9"),
        (lambda text: text.replace('"us":[', '"us":["fast",', 1), "line 2: damaged"),
        (lambda text: text.replace('"at":[4,', '"at":[5,', 1), "line 2: damaged"),
        (lambda text: text.splitlines()[0] + "\n", "no valid point"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path, change, words):
    path = tmp_path / f"tiny{table.SUFFIX}"
    table.write(path, tiny.space().header, tiny.space().points.values())
    text = gzip.decompress(path.read_bytes()).decode()
    path.write_bytes(gzip.compress(change(text).encode()))
    with pytest.raises(SpaceError, match=words) as caught:
        table.read(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_compressed_is_refused(tmp_path):
    path = tmp_path / "plain.gz"
    path.write_text("no gzip")
    with pytest.raises(SpaceError, match=r"cannot be read as a recorded space"):
        table.read(path)
