"""Scripted answers for one small problem: some right, some wrong, some slow, some malicious.

What is said depends on the request alone, and on how often such a request came before.
"""

import re
import threading
from typing import Any

from kernelpro.models.anchors import BEGIN, END
from kernelpro.models.sources import MARKER
from tests.models.servers import Reply, Say

PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 1.5 + 0.5) * 0.25 - x * 0.125 + torch.abs(x) * 0.5 + 1.0


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
"""

LAST = (
    "    for (long i = 0; i < n; ++i)"
    " y[i] = (x[i] * 1.5f + 0.5f < 0 ? 0 : x[i] * 1.5f + 0.5f) * 0.25f - x[i] * 0.125f"
    " + (x[i] < 0 ? -x[i] : x[i]) * 0.5f + 1.0f;"
)
AGAIN = "    for (volatile int again = 0; again < 60; ++again)"
ONCE = "    #pragma omp simd"


def kernel(*body: str, forward: str = "") -> str:
    lines = "\n".join(body)
    return f'''import torch

CPP_SOURCE = r"""
extern "C" void run(const float* x, float* y, long n) {{
{lines}
}}
"""
CPP_FLAGS = ("-O3", "-march=native", "-fopenmp", "-std=c++17", "-fno-trapping-math")

{MARKER}

_kernels = load_cpp(CPP_SOURCE, CPP_FLAGS)
_kernels.run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
_kernels.run.restype = None


class ModelNew(torch.nn.Module):
    def forward(self, x):
{forward}        y = torch.empty_like(x)
        _kernels.run(x.data_ptr(), y.data_ptr(), x.numel())
        return y
'''


THIEF = """        import os
        seen = " ".join(os.environ.values()) + open("/proc/self/environ").read()
        raise RuntimeError("a key was seen: " + str("sk-secret" in seen))
"""
SLOW = kernel(AGAIN, LAST)
FAST = kernel(ONCE, LAST)
MISSPELT = kernel(LAST.replace("y[i] =", "z[i] ="))
WRONG = kernel(LAST.replace("0.25f", "0.26f"))
ELSEWHERE = kernel(AGAIN, LAST, forward="        x = x * 1.0\n")
STEALING = kernel(LAST, forward=THIEF)

CODE = {
    "take it slowly": SLOW,
    "misspell it": MISSPELT,
    "get it wrong": WRONG,
    "edit elsewhere": ELSEWHERE,
    "do it once": FAST,
    "steal the key": STEALING,
}
"""What the code role writes on each piece of advice."""

AT_ROOT = ("take it slowly", "misspell it", "get it wrong", "refuse it", "steal the key")


def anchored(source: str, line: str, advice: str) -> str:
    """The source with anchors around one of its lines."""
    mark = "//" if "CPP_SOURCE" in source else "#"
    blank = line[: len(line) - len(line.lstrip())]
    marked = (f"{mark} {BEGIN}", f"{mark} {advice}", line.lstrip(), f"{mark} {END}")
    return source.replace(line, "\n".join(blank + text for text in marked))


class Team:
    """Plays all roles; an instance is a server's script.

    Attributes:
        asked: what each request was about, oldest first: of a plan the parent, else the advice.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, body: dict[str, Any], number: int) -> Reply:
        text = "\n".join(part["text"] for part in body["messages"][0]["content"])
        tool = body["tool_choice"]["name"]
        if tool == "plan_change":
            source = text.partition("The source:\n```\n")[2].partition("```")[0]
            about = "a slow kernel" if AGAIN in source else "a kernel"
            about = about if "ModelNew" in source else "the reference"
        elif tool == "repair_kernel":
            about = "an error" if "First error" in text else "another failure"
        else:
            about = str(re.search(r"^Advice: (.*)$", text, re.MULTILINE)[1])  # type: ignore[index]
        with self._lock:
            before = self.asked.count(about)
            self.asked.append(about)
        if tool == "plan_change":
            return self._plan(about, before)
        if tool == "repair_kernel":
            shown = "z[i] =" in text and "was not declared" in text
            source = kernel(AGAIN.replace("60", "30"), LAST) if shown else "class ModelNew: pass\n"
            return Say(arguments={"source": source, "cause": "a slip of the pen"})
        if about == "refuse it":
            return Say(text="No.", stop="refusal")
        return Say(arguments={"source": CODE[about], "note": about})

    def _plan(self, about: str, before: int) -> Reply:
        if about == "the reference":
            if before == 0:
                return Say(form='{"source": "cut in the mid')
            line = next(text for text in PROBLEM.splitlines() if "return torch.relu" in text)
            say = AT_ROOT[min(before, len(AT_ROOT)) - 1]
            wait_s = 0.2 if before == 2 else 0.0
            return Say(arguments=_fields(anchored(PROBLEM, line, say), say), wait_s=wait_s)
        if about == "a slow kernel":
            say = "edit elsewhere" if before == 0 else "do it once"
            return Say(arguments=_fields(anchored(SLOW, AGAIN, say), say))
        if before % 2:
            path = {"may_also_change": ["../../etc/passwd"]}
            return Say(arguments=_fields(anchored(FAST, LAST, "read it"), "read it") | path)
        return Say(arguments=_fields(FAST.replace("0.5f", "0.7f"), "change it myself"))


def _fields(source: str, say: str) -> dict[str, Any]:
    return {"source": source, "advice": say, "title": say}
