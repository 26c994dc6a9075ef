"""What the documentation shows works: commands, Python, settings, links, and the page of errors.

Commands are run in a folder that has what they name, in this process, but for those that need a
GPU, a key or more than a second or two: of these the options must exist. WHY_NOT says which.
"""

import ast
import json
import re
import shlex
import shutil
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest

import kernelpro
from kernelpro.cli import build_parser, main
from kernelpro.judge.settings import JudgeSettings
from kernelpro.models.settings import ModelSettings
from kernelpro.problems.kernelbench import ProblemSettings
from kernelpro.runs import read
from kernelpro.scoring import kernelbench
from kernelpro.search import memory
from tests import error_sentences

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MEMORY = ROOT / "results" / "cpu" / "layer_norm.jsonl"

# Commands that are not run here, by how they begin, and why.
WHY_NOT = {
    "search": "takes minutes, and with a model a key; tests/test_packaging.py searches",
    "ask": "needs a search that is given out task by task; tests/agents/ drives one",
    "tell": "likewise",
    "code": "needs a tree of sources; tests/code_search/ makes one",
    "serve": "does not end; tests/report_page/test_server.py serves",
    "profile": "takes as long as its profilers; tests/test_cli.py profiles",
    "diagnose": "its files are large; tests/profiling/ reads such files",
    "calibrate": "measures for minutes",
    "doctor": "tries the confinement for seconds; tests/judge/test_confinement.py does",
    "bench": "searches for minutes; tests/test_cli_bench.py runs it on small tables",
    "energy": "needs a meter; tests/energy/test_energy_command.py has one",
    "check": "starts a judge each; one of them is run here, test_cli_check.py runs more",
    "lessons wipe": "asks first; tests/lessons/test_lessons_cli.py answers",
    "replay --reevaluate": "judges for seconds; tests/test_cli_replay.py does",
}
RUN_ALL_THE_SAME = (
    "check kernel.py --problem model.py",
    "energy --trace runs/energy-....jsonl",
)

MODEL = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 1.5 + 0.25) * x


def get_inputs():
    return [torch.rand(64, 128)]


def get_init_inputs():
    return []
"""


def commands(page):
    """The lines of a page that call kernelpro, as words, and the file that output goes to."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if match := re.match(r" {4,}(?:(?:\.venv/bin/)?python -m kernelpro|kernelpro) (.*)", line):
            words = shlex.split(match[1], comments=True)
            target = words[words.index(">") + 1] if ">" in words else ""
            yield words[: words.index(">")] if target else words, target


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def reason(words):
    """Why a command is not run, or None."""
    if " ".join(words) in RUN_ALL_THE_SAME:
        return None
    for begin, why in WHY_NOT.items():
        first, *rest = begin.split()
        if words[0] == first and all(word in words for word in rest):
            return why
    return None


KERNEL = MODEL.replace("class Model(", "class ModelNew(")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder that has what the pages' commands name."""
    folder = tmp_path_factory.mktemp("docs")
    (mix,) = (b for b in blocks(ROOT / "docs" / "workloads.md", "python") if "class Model" in b)
    for name, text in {
        "model.py": MODEL,
        "mix.py": mix,
        "kernel.py": KERNEL,
        "problems/model.py": MODEL,
        "level1/1_Model.py": MODEL,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    held = memory.contents(MEMORY)
    for name, origin in {
        "model-cpu-....jsonl": "model.py",
        "suite-problems/model-cpu.jsonl": "model.py",
        "suite-a/model-cpu.jsonl": "model.py",
        "suite-b/model-cpu.jsonl": "model.py",
        "suite-level1/40_LayerNorm-cpu.jsonl": "level1/40_LayerNorm.py",
    }.items():
        header = replace(held.header, problem=replace(held.header.problem, origin=origin))
        with memory.create(folder / "runs" / name, header) as journal:
            for step in held.steps:
                journal.append(getattr(step, "whole", step))
            for confirmation in held.confirmations:
                journal.append_confirmation(confirmation)
    theirs = folder / "path" / "to" / "KernelBench" / "runs" / "name"
    kernelbench.write(theirs, read(folder / "runs" / "suite-level1"))
    shutil.copy(theirs / "baseline_time_eager.json", folder / "baseline_time_torch.json")
    shutil.copy(ROOT / "tests" / "data" / "energy_trace.jsonl", folder / "runs/energy-....jsonl")
    shutil.copy(folder / "runs/model-cpu-....jsonl", folder / "FILE")
    return folder


def test_every_command_is_one_that_kernelpro_has():
    shown = [words for page in PAGES for words, _ in commands(page)]
    assert len(shown) > 60
    parser = build_parser()
    for words in shown:
        try:
            parser.parse_args(words)
        except SystemExit:
            pytest.fail(f"kernelpro {shlex.join(words)}")
    assert {name.split()[0] for name in WHY_NOT} <= {words[0] for words in shown}


def test_every_command_that_can_be_run_here_works(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    monkeypatch.setenv("KERNELPRO_DATA", str(place / "data"))
    monkeypatch.setenv("KERNELPRO_JUDGE_MAX_TIMING_S", "0.05")
    assert main(["lessons", "import", "runs/model-cpu-....jsonl"]) == 0
    assert main(["lessons", "export", "colleague.db"]) == 0
    done = []
    for page in PAGES:
        for words, target in commands(page):
            words = [w for word in words for w in _files(word)]
            if reason(words) is not None or (words, target) in done:
                continue
            (place / "kernel.py").write_text(KERNEL)  # another command has written its own
            for made in _written(words):
                made.unlink(missing_ok=True)
            capsys.readouterr()
            status = main(words)
            shown = capsys.readouterr()
            assert status in (0, 1), f"{page.name}: {shlex.join(words)}: {shown.err}"
            if target:
                (place / target).write_text(shown.out)
            if status == 1:  # a negative answer, told with its reason
                assert words[0] in ("program", "replay"), f"{page.name}: {shlex.join(words)}"
            done.append((words, target))
    assert len(done) >= 25
    assert {words[0] for words, _ in done} >= {
        *("replay", "report", "score", "export", "prompt", "program", "sol", "audit", "lessons"),
        *("check", "energy", "plugins", "tour"),
    }


def _files(word):
    """A word of a command as a shell would give it."""
    if "*" in word:
        return sorted(str(path) for path in Path().glob(word) if "energy" not in path.name)
    return [word]


def _written(words):
    """Files that an earlier command wrote and that this one makes anew."""
    if words[:2] == ["lessons", "export"]:
        return [Path(words[2])]
    if "--kernelbench" in words:
        return [p for p in Path(words[words.index("--kernelbench") + 1]).glob("*") if p.is_file()]
    return []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_and_settings_that_are_shown_are_right(page, place, monkeypatch):
    for block in blocks(page, "python"):
        tree = ast.parse(block)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        searches = "kernelpro.search(" in block  # takes a minute
        # tests/plugins/test_hook_docs.py runs the blocks of that page one after the other.
        judges = "StdioServerParameters" in names  # so do agents; tests/agents runs one
        needless = searches or judges or page.name == "plugin_hooks.md" or "cupy" in names
        if not needless:
            monkeypatch.chdir(place)
            exec(compile(tree, page.name, "exec"), {"__name__": "shown"})
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id="kernelpro"), attr=name):
                    assert hasattr(kernelpro, name), f"{page.name}: kernelpro.{name}"
    for block in blocks(page, "toml"):
        tables = tomllib.loads(block)
        for name, cls in {
            "judge": JudgeSettings,
            "models": ModelSettings,
            "problems": ProblemSettings,
        }.items():
            assert tables.get(name, {}).keys() <= {field.name for field in fields(cls)}
    for block in blocks(page, "json"):
        json.loads(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_points_at_is_there(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target).exists(), f"{page.name} points at {target}"
    for path in re.findall(r"`((?:kernelpro|docs|tests|benchmarks|results)/[\w./-]+)`", text):
        assert ".vN." in path or (ROOT / path).exists(), f"{page.name} names {path}"
    for module in re.findall(r"python -m ((?:benchmarks|tests)\.[\w.]+)", text):
        assert ROOT.joinpath(*module.split(".")).with_suffix(".py").exists(), module
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make ([\w-]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for names in re.findall(r"pip install .*\[([\w,]+)\]", text):
        assert set(names.split(",")) <= extras["optional-dependencies"].keys(), page.name


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_every_sentence_that_kernelpro_refuses_something_with_has_its_entry():
    page = error_sentences.page()
    kept = error_sentences.PAGE.read_text(encoding="utf-8")
    assert kept.splitlines() == page.splitlines(), (
        "sentences changed: run `python -m tests.error_sentences`"
    )
    assert "- ... is being written by another search" in page
    assert "- candidate ... cannot be read: ..." in page
    told = (ROOT / "docs" / "faq.md").read_text()
    quoted = re.findall(r"\*\*\"(.*?)\"\.\*\*", " ".join(told.split()))
    assert len(quoted) >= 6
    for words in quoted:
        parts = [part.strip() for part in words.split("...") if part.strip()]
        assert all(part in page for part in parts), f"no sentence says {words!r}"
