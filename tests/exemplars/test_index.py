"""The index of worked kernels is whole, and each is a problem with a candidate for it."""

import re
from pathlib import Path

import pytest

from kernelpro import exemplars, problems
from kernelpro.manager import create_plugin_manager
from kernelpro.plugins.static_rules import breaches
from kernelpro.targets import declared

CUPY = "CuPy, which has NVRTC's bindings, is not installed; pip install cupy-cuda13x"


def test_every_folder_is_in_the_index_and_every_entry_has_its_files():
    folders = {p.parent.name for p in Path(exemplars.__path__[0]).glob("*/candidate.py")}
    assert sorted(exemplars.names()) == sorted(folders)
    assert len(set(exemplars.names())) == len(exemplars.INDEX) >= 12
    assert all(e.problem.is_file() for e in exemplars.INDEX)


@pytest.mark.parametrize("exemplar", exemplars.INDEX, ids=exemplars.names())
def test_its_profile_names_the_card_and_says_what_bounds_it(exemplar):
    first, verdict, clock, kind, *findings = exemplar.profile.read_text().splitlines()
    assert re.match(r"problem on NVIDIA H[12]00: +\d", first)
    assert verdict.startswith("right in ")
    assert clock.startswith("time: ")
    assert kind.startswith("class: ")
    assert "speed of light" in kind
    assert any(line.startswith("- [") for line in findings)
    assert not any("cut short" in line for line in findings)


def test_its_words_are_those_of_the_index_and_its_actions_those_of_detectors():
    _, complaints = create_plugin_manager()
    assert not complaints
    folder = Path(exemplars.__path__[0]).parent / "plugins"
    known = " ".join(p.read_text() for p in folder.glob("detect_*.py"))
    for exemplar in exemplars.INDEX:
        assert exemplar.operator_class in exemplars.CLASSES
        assert exemplar.bottleneck in exemplars.BOTTLENECKS
        assert exemplar.why.endswith(".")
        for action in exemplar.actions:
            assert f'"{action}"' in known, f"no detector asks for {action}"


@pytest.mark.parametrize("exemplar", exemplars.INDEX, ids=exemplars.names())
def test_it_is_a_problem_and_a_candidate_that_no_rule_objects_to(exemplar):
    problem = problems.load(str(exemplar.problem), target="cuda")
    assert problem.dtype == exemplar.dtype
    source = exemplar.candidate.read_text()
    assert not breaches(source)
    found = declared.literals(source, ("CUDA_SOURCE", "CUDA_OPTIONS"))
    assert isinstance(found["CUDA_SOURCE"], str)
    assert isinstance(found["CUDA_OPTIONS"], tuple)
    assert "__cuda_stream__" in source  # it runs on torch's current stream
    assert re.search(r"ValueError\(f?\"this kernel", source)
    assert len(source) < 10_000


@pytest.mark.parametrize("exemplar", exemplars.INDEX, ids=exemplars.names())
def test_nvrtc_compiles_it(exemplar):
    pytest.importorskip("cupy", reason=CUPY)
    from cupy_backends.cuda.libs import nvrtc

    found = declared.literals(exemplar.candidate.read_text(), ("CUDA_SOURCE", "CUDA_OPTIONS"))
    options = tuple(found["CUDA_OPTIONS"] or ())
    options += () if exemplar.arch_only else (f"-arch=sm_{max(exemplar.arch, 75)}",)
    program = nvrtc.createProgram(found["CUDA_SOURCE"], "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, (*options, "-ftz=true", "-Xptxas=-v"))
        log = nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)
    assert not re.search(r"[1-9]\d* bytes spill|warning", log), log
