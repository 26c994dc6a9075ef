from dataclasses import dataclass
from pathlib import Path

import pytest

from kernelpro.errors import SettingsError
from kernelpro.settings import cache_folder, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    number: int = 1
    ratio: float = 0.5
    on: bool = False
    text: str = "a"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "kernelpro.toml"


def test_defaults_stand_when_nothing_is_set(file):
    assert resolve("knobs", Knobs, environment={}) == Knobs()


def test_later_sources_win(file):
    file.write_text("[knobs]\nnumber = 2\nratio = 2\ntext = 'file'\n[other]\nx = 1\n")
    variables = {"KERNELPRO_KNOBS_RATIO": "3.5", "KERNELPRO_KNOBS_TEXT": "environment"}
    flags = {"text": "flag", "on": None}
    expected = Knobs(number=2, ratio=3.5, text="flag")
    assert resolve("knobs", Knobs, flags, environment=variables) == expected


def test_the_process_environment_is_used_only_when_none_is_given(file, monkeypatch):
    monkeypatch.setenv("KERNELPRO_KNOBS_NUMBER", "7")
    assert resolve("knobs", Knobs).number == 7
    assert resolve("knobs", Knobs, environment={}).number == 1


def test_a_named_file_is_read_and_a_missing_one_refused(file, tmp_path):
    named = tmp_path / "mine.toml"
    named.write_text("[knobs]\nnumber = 5\n")
    assert resolve("knobs", Knobs, file=named, environment={}).number == 5
    with pytest.raises(SettingsError, match=r"gone\.toml does not exist"):
        resolve("knobs", Knobs, file=tmp_path / "gone.toml", environment={})


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("Yes", True), ("on", True), ("0", False), ("FALSE", False)]
)
def test_truth_in_the_environment_has_the_usual_spellings(file, text, value):
    assert resolve("knobs", Knobs, environment={"KERNELPRO_KNOBS_ON": text}).on is value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[knobs\n", "is not TOML"),
        ("knobs = 3\n", r"\[knobs\] must be a table, but is 3"),
        ("[knobs]\nnumbre = 3\n", r"has no 'numbre'; it has number, on, ratio, text"),
        ("[knobs]\nnumber = 1.5\n", r"\[knobs\] number must be of type int, but is 1.5"),
        ("[knobs]\nnumber = true\n", "number must be of type int, but is True"),
        ("[knobs]\nratio = true\n", "ratio must be of type float, but is True"),
        ("[knobs]\non = 1\n", "on must be of type bool, but is 1"),
        ("[knobs]\ntext = ['a']\n", "text must be of type str"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(file, content, message):
    file.write_text(content)
    with pytest.raises(SettingsError, match=message):
        resolve("knobs", Knobs, environment={})


def test_a_file_that_is_no_text_is_refused(file):
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="is not TOML"):
        resolve("knobs", Knobs, environment={})


@pytest.mark.parametrize(
    ("name", "text"), [("NUMBER", "two"), ("NUMBER", "1.5"), ("RATIO", ""), ("ON", "maybe")]
)
def test_a_wrong_variable_is_refused_by_name(file, name, text):
    with pytest.raises(SettingsError, match=f"KERNELPRO_KNOBS_{name} must be"):
        resolve("knobs", Knobs, environment={f"KERNELPRO_KNOBS_{name}": text})


def test_the_cache_folder_follows_its_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KERNELPRO_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "kernelpro"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/kernelpro")
    monkeypatch.setenv("KERNELPRO_CACHE", "/k")
    assert cache_folder() == Path("/k")
