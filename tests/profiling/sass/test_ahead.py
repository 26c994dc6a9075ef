"""Disassembly that was begun ahead gives what it would give later, errors included."""

from pathlib import Path

import pytest

from kernelpro.profiling.sass import ahead, disassembly
from kernelpro.profiling.sass.errors import SassError

LISTING = Path(__file__).parents[2] / "data" / "sass" / "kernels.sm_90a.sass"


def test_what_was_begun_ahead_is_what_would_be_read_now():
    ahead.begin(LISTING)
    ahead.begin(LISTING)
    assert ahead.of_file(LISTING) == disassembly.of_file(LISTING)
    assert ahead.of_file(LISTING) == disassembly.of_file(LISTING)


def test_a_fault_is_told_when_the_result_is_asked_for(tmp_path):
    empty = tmp_path / "empty.cubin"
    empty.write_bytes(b"")
    ahead.begin(empty)
    with pytest.raises(SassError, match="0 bytes"):
        ahead.of_file(empty)


def test_only_so_many_are_kept(tmp_path):
    for n in range(ahead.KEPT + 4):
        ahead.begin(tmp_path / str(n))
    with pytest.raises(SassError):
        ahead.of_file(tmp_path / "0")
