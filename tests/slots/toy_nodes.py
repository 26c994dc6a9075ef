"""Nodes of a Ray cluster whose GPUs are labels, and binaries that know what they were built for.

A candidate is compiled as C++ with its own name and an architecture in it, and a slot loads what
it is given and refuses what was built for another one, as a GPU does. Times are the toy's.
"""

import ctypes
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelpro.errors import TargetError
from kernelpro.records import Build, Candidate, Evaluation, Outcome, Verdict
from kernelpro.search.bench import Measured
from kernelpro.serial import decode
from kernelpro.slots import serve
from kernelpro.slots.client import Opened
from kernelpro.slots.ray_builds import answer
from kernelpro.targets.cpu import build_cpp
from tests.search.toy import MACHINE, ToyBench
from tests.slots.lines import ToyTarget

CAPABILITY = "KERNELPRO_TEST_CAPABILITY"  # of a node's GPU
NOTES = "KERNELPRO_TEST_NOTES"  # folder of what was built where
NAME = "KERNELPRO_TEST_NODE"  # of a node
HOLD_S = 0.15  # what measuring takes, so that slots overlap
SOURCE = """
extern "C" int architecture() {{ return {architecture}; }}
extern "C" unsigned candidate() {{ return 0x{candidate}u; }}
"""


class NodeTarget(ToyTarget):
    """Builds C++ that tells for which candidate and which architecture it was built."""

    def build(self, candidate: Candidate, architecture: str = "") -> Build | None:
        number = architecture.removeprefix("sm_")
        if not number:
            raise TargetError("there is no GPU here")
        return build_cpp(SOURCE.format(architecture=number, candidate=candidate.id[:8]), ("-O1",))


def build_on_node(
    target: str, candidate: Mapping[str, Any], architecture: str
) -> Mapping[str, Any]:
    """Build as `on_node` does; note it, and wait first for as long as this node is held."""
    notes, name = Path(os.environ[NOTES]), os.environ[NAME]
    identity = decode(Candidate, candidate).id
    (notes / f"{name} {identity} {architecture} begun").touch()
    while (notes / f"{name} held").exists():
        time.sleep(0.02)
    made = answer(NodeTarget(), candidate, architecture)
    (notes / f"{name} {identity} {architecture} ended").touch()
    return made


class NodeServer(serve.Server):
    """A slot on a GPU that is a label; as an actor, or in the search's own process."""

    def __init__(self) -> None:
        super().__init__()
        self._toy = ToyBench()
        self._capability = os.environ[CAPABILITY]

    def _open(self, request: Mapping[str, Any]) -> Any:
        facts = {"capability": self._capability}
        return Opened(machine=replace(MACHINE, target="cuda", facts=facts), card="GPU-0")

    def _baseline(self, request: Mapping[str, Any]) -> Any:
        return self._toy.baseline()

    def _ready(self, request: Mapping[str, Any]) -> Any:
        return None

    def _measure(self, request: Mapping[str, Any]) -> Any:
        candidate, build = decode(Candidate, request["candidate"]), serve._built(request)
        assert build is not None
        time.sleep(HOLD_S)
        library = ctypes.CDLL(build.binary)
        own, built_for = int(self._capability.replace(".", "")), library.architecture()
        if built_for != own:
            words = f"no kernel image for sm_{own}: it was built for sm_{built_for}"
            return Measured(evaluation=Evaluation(outcome=Outcome.RUNTIME_ERROR, message=words))
        library.candidate.restype = ctypes.c_uint
        assert library.candidate() == int(candidate.id[:8], 16)
        measured = self._toy.evaluate(candidate)
        verdict = Verdict(decision="accept", evidence={"built for": f"sm_{built_for}"})
        # The record names the search's own file, not the one that travelled here.
        build = decode(Build, request["build"])
        return replace(
            measured, evaluation=replace(measured.evaluation, build=build, verdict=verdict)
        )


class HereLine:
    """A slot in the search's own process."""

    def __init__(self, place: object) -> None:
        self._server = NodeServer()

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._server.answer(request)

    def close(self) -> None:
        self._server.close()
