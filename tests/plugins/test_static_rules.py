import pytest

from kernelpro.plugins.static_rules import NOTE, REJECT, RULES, breaches

BROKEN = {
    "introspection": [
        "import inspect\ninspect.stack()",
        "from sys import _getframe as look\nlook(1)",
        "import gc\nfind = gc.get_objects\nfind()",
        "def f(e): return e.__traceback__.tb_frame",
        "def f(e): return getattr(e, 'f_' + 'locals')",
    ],
    "monkeypatch": [
        "import torch\ntorch.matmul = None",
        "import torch.nn.functional as F\nF.gelu = lambda x: x",
        "from torch.cuda import Event as E\nE.elapsed_time = None",
        "import torch\nowner = getattr(torch, 'cu' + 'da')\nsetattr(owner, 'synchronize', print)",
        "import sys\nsys.modules['torch'].rand = None",
        "import importlib\ntime = importlib.import_module('time')\ntime.time = None",
        "exec('import torch; torch.rand = None')",
        "import time\ndel time.sleep",
        "import torch\na, torch.mm = 1, 2",
    ],
    "precision_switch": [
        "import torch\ntorch.backends.cudnn.allow_tf32 = True",
        "import torch\ntorch.set_float32_matmul_precision('high')",
        "import torch\nb = torch.backends\nb.cuda.matmul.fp32_precision = 'tf32'",
    ],
    "encoded_code": [
        "import base64\nexec(base64.b64decode('cGFzcw=='))",
        "import zlib\ncode = zlib.decompress(b'')\neval(code)",
    ],
    "network": [
        "import requests",
        "from urllib.request import urlopen",
        "import socket as s\ns.create_connection(('a', 1))",
    ],
    "install": ["import pip", "import subprocess\nsubprocess.run(['python', '-m', 'pip', 'x'])"],
    "process": ["import os\nos.fork()", "from os import _exit\n_exit(0)"],
    "secrets": [
        "import os\nx = [v for k, v in os.environ.items()]",
        "import os\nfor name in sorted(os.environ): print(name)",
        "import os\nos.environ.get('MY_API_' + 'KEY')",
        "import os\nos.getenv('HF_TOKEN')",
    ],
    "harness": ["import kernelpro.judge.raw", "from kernelpro.judge import raw", "import __main__"],
    "torch_override": ["import torch\ntorch.library.Library('aten', 'IMPL')"],
    "swallowed_exception": ["try: x = 1\nexcept Exception: pass", "try: x = 1\nexcept: pass"],
    "inherits_reference": ["class ModelNew(Model): pass"],
    "torch_compile": ["import torch\nf = torch.compile(print)"],
    "dynamic_code": ["def f(text): exec(text)"],
}
HONEST = [
    "# torch.matmul = None; gc.get_objects(); import requests",
    '"""time.time = None, os._exit(0), inspect.stack()"""',
    "words = 'torch.rand = None'",
    "import torch\ntorch.backends.cuda.matmul.allow_tf32 = False",
    "import torch\ntorch.backends.cudnn.benchmark = True",
    "import torch\ntorch._inductor.config.max_autotune = True",
    "import torch\ntorch.set_float32_matmul_precision('highest')",
    "import os\nos.environ['CXX'] = 'g++'\nx = {**os.environ, 'LC_ALL': 'C'}",
    "import os\nos.environ.get('CUDA_HOME')",
    "import subprocess\nsubprocess.run(['nvcc', 'a.cu'])",
    "import inspect\ninspect.signature(print)",
    "class A:\n    def __init__(self): self.stack = self.time = 1",
    "def f(x):\n    x.grad = None\n    return x",
    "try:\n    import triton\nexcept ImportError as e:\n    raise RuntimeError from e",
    "import torch\nl = torch.library.Library('mine', 'DEF')",
    "class Model: pass\nclass ModelNew(Model): pass",
    "eval('1 + 1')",
    "class ModelNew(:",
]


@pytest.mark.parametrize(
    ("name", "source"), [(name, s) for name, sources in BROKEN.items() for s in sources]
)
def test_a_rule_is_broken(name, source):
    assert name in {breach.rule.name for breach in breaches(source)}


@pytest.mark.parametrize("source", HONEST)
def test_honest_code_breaks_no_rule(source):
    assert breaches(source) == []


def test_every_rule_is_tried_has_a_sentence_and_a_strength():
    assert set(BROKEN) == set(RULES)
    assert all(len(rule.sentence) > 10 for rule in RULES.values())
    assert {rule.strength for rule in RULES.values()} == {REJECT, NOTE}


def test_a_breach_names_its_first_line():
    (breach,) = breaches("import gc\n\ngc.get_objects()\ngc.get_objects()")
    assert breach.line == 3
    assert str(breach).startswith("introspection (line 3): it looks")
