"""Rules on a candidate's code that need no run: each has a name, a sentence and a strength.

They look at Python's syntax tree, so that words in comments, docstrings and strings never count;
text that is handed to `exec` or `eval` as a constant is code and is read too. A rule rejects only
what has no honest use in a kernel's file; everything else that may matter is for the judge, which
decides by what a candidate does. None of them keeps anything safe.
"""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

REJECT, NOTE = "reject", "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a rule is called, what it means when it is broken, and what that leads to."""

    name: str
    sentence: str
    strength: str = REJECT


RULES = {
    rule.name: rule
    for rule in (
        Rule(
            name="introspection",
            sentence="it looks at the call stack or at all objects of the process",
        ),
        Rule(name="monkeypatch", sentence="it replaces a function of a module that is not its own"),
        Rule(
            name="precision_switch",
            sentence="it lowers the precision of torch's operators for the whole process; "
            "--precision tf32 or bf16 allows that",
        ),
        Rule(name="encoded_code", sentence="it runs code that is hidden in encoded data"),
        Rule(name="network", sentence="it uses the network"),
        Rule(name="install", sentence="it installs or downloads software"),
        Rule(name="process", sentence="it forks, signals or ends processes"),
        Rule(name="secrets", sentence="it searches the environment for secrets"),
        Rule(name="harness", sentence="it imports or rewrites the program that judges it"),
        Rule(name="torch_override", sentence="it replaces torch's own operators (torch.library)"),
        Rule(
            name="swallowed_exception",
            sentence="it hides any exception, so that a broken kernel may fall back unseen",
            strength=NOTE,
        ),
        Rule(
            name="inherits_reference",
            sentence="it inherits from Model, which it does not define",
            strength=NOTE,
        ),
        Rule(
            name="torch_compile",
            sentence="it compiles torch code; compare it with the compiled baseline",
            strength=NOTE,
        ),
        Rule(
            name="dynamic_code", sentence="it runs code that is made while it runs", strength=NOTE
        ),
    )
}

# Dotted names of calls, by rule; a name that ends in a dot stands for all below it.
_CALLS = {
    "inspect.stack": "introspection",
    "inspect.trace": "introspection",
    "inspect.currentframe": "introspection",
    "inspect.getouterframes": "introspection",
    "sys._getframe": "introspection",
    "sys._current_frames": "introspection",
    "traceback.extract_stack": "introspection",
    "traceback.walk_stack": "introspection",
    "gc.get_objects": "introspection",
    "gc.get_referrers": "introspection",
    "gc.get_referents": "introspection",
    "sys.settrace": "monkeypatch",
    "sys.setprofile": "monkeypatch",
    "socket.socket": "network",
    "socket.create_connection": "network",
    "urllib.request.": "network",
    "http.client.": "network",
    "requests.": "network",
    "httpx.": "network",
    "aiohttp.": "network",
    "os.fork": "process",
    "os.forkpty": "process",
    "os._exit": "process",
    "os.kill": "process",
    "os.killpg": "process",
    "os.abort": "process",
    "torch.compile": "torch_compile",
}
_IMPORTS = {
    "requests": "network",
    "httpx": "network",
    "aiohttp": "network",
    "urllib.request": "network",
    "http.client": "network",
    "ftplib": "network",
    "smtplib": "network",
    "pip": "install",
    "ensurepip": "install",
    "kernelpro.judge": "harness",
    "__main__": "harness",
}
_FRAMES = frozenset(("f_back", "f_locals", "f_globals", "tb_frame", "gi_frame", "cr_frame"))
# Modules whose functions are nobody's to replace; options are set on the names after them.
_PROTECTED = frozenset(
    (
        *("torch", "numpy", "kernelpro", "__main__", "builtins", "sys", "os", "gc", "inspect"),
        *("time", "json", "importlib", "threading", "socket"),
    )
)
_OPTIONS = frozenset(("backends", "config", "knobs", "options", "environ", "_dynamo", "_inductor"))
_DECODERS = frozenset(
    (
        *("b64decode", "b32decode", "b16decode", "a85decode", "b85decode", "decompress"),
        *("unhexlify", "fromhex", "rot13", "marshal", "loads"),
    )
)
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
_LOOSE = frozenset(("tf32", "medium", "high", "bf16"))
_LOOSENING = frozenset(("allow_tf32", "fp32_precision", "allow_fp16_accumulation"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A rule that a source breaks, and in which line first."""

    rule: Rule
    line: int

    def __str__(self) -> str:
        return f"{self.rule.name} (line {self.line}): {self.rule.sentence}"


def breaches(source: str) -> list[Breach]:
    """Find what a source breaks, each rule once, in the order of lines; none if it does not parse.

    Args:
        source: a Python file's text.
    """
    first: dict[str, int] = {}
    for name, line in _findings(source, 0):
        first[name] = min(line, first.get(name, line))
    found = [Breach(rule=RULES[name], line=line) for name, line in first.items()]
    return sorted(found, key=lambda breach: breach.line)


def _findings(source: str, depth: int) -> Iterator[tuple[str, int]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    nodes = list(ast.walk(tree))
    names = _Names(nodes)
    for node in nodes:
        line = getattr(node, "lineno", 0)
        for rule in _of_node(node, names):
            yield rule, line
        if isinstance(node, ast.Call) and names.full(node.func) in ("exec", "eval", "compile"):
            text = names.text(node.args[0]) if node.args else None
            if text is not None and depth < 2:
                for rule, _ in _findings(text, depth + 1):
                    yield rule, line
            elif node.args and _decodes(node.args[0], names):
                yield "encoded_code", line
            else:
                yield "dynamic_code", line


class _Names:
    """What the names of a file stand for: modules, parts of them, constants."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self.alias: dict[str, str] = {}
        self.values: dict[str, ast.expr] = {}
        self.own: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Import):
                for item in node.names:
                    top = item.name.partition(".")[0]
                    self.alias[item.asname or top] = item.name if item.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for item in node.names:
                    self.alias[item.asname or item.name] = f"{node.module}.{item.name}"
            elif isinstance(node, ast.ClassDef):
                self.own.add(node.name)
        # Twice, because a name may stand for one that is bound further down.
        for _ in range(2):
            for node in nodes:
                if isinstance(node, ast.Assign) and len(node.targets) == 1:
                    self._bind(node.targets[0], node.value)
                elif isinstance(node, ast.NamedExpr):
                    self._bind(node.target, node.value)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name) or target.id in self.own:
            return
        self.values[target.id] = value
        name = self.full(value)
        if name.partition(".")[0] in _PROTECTED and target.id != name:
            self.alias[target.id] = name

    def full(self, node: ast.AST) -> str:
        """The dotted name that an expression stands for, through aliases and getattr."""
        if isinstance(node, ast.Name):
            return self.alias.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            below = self.full(node.value)
            return f"{below}.{node.attr}" if below else ""
        if isinstance(node, ast.Subscript) and self.full(node.value) == "sys.modules":
            return self.text(node.slice) or "sys.modules"
        if isinstance(node, ast.Call) and node.args:
            function = self.full(node.func)
            if function == "getattr" and len(node.args) > 1:
                below = self.full(node.args[0])
                return f"{below}.{self.text(node.args[1]) or '?'}" if below else ""
            if function in ("__import__", "importlib.import_module"):
                return self.text(node.args[0]) or ""
        return ""

    def text(self, node: ast.AST, depth: int = 0) -> str | None:
        """The constant text of an expression: literals, their sums, joins and names of them."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if depth > 8:
            return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.text(node.left, depth + 1), self.text(node.right, depth + 1)
            return left + right if left is not None and right is not None else None
        if isinstance(node, ast.JoinedStr):
            parts = [self.text(part, depth + 1) for part in node.values]
            return "".join(p for p in parts if p is not None) if None not in parts else None
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.text(self.values[node.id], depth + 1)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "join"
            and node.args
            and isinstance(node.args[0], ast.List | ast.Tuple)
        ):
            glue = self.text(node.func.value, depth + 1)
            parts = [self.text(item, depth + 1) for item in node.args[0].elts]
            if glue is not None and None not in parts:
                return glue.join(p for p in parts if p is not None)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            whole = self.text(node.value, depth + 1)
            step = node.slice.step
            backwards = isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)
            if whole is not None and backwards and not node.slice.lower and not node.slice.upper:
                return whole[::-1]
        return None


def _of_node(node: ast.AST, names: _Names) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for item in node.names:
            yield from _imported(item.name)
    elif isinstance(node, ast.ImportFrom):
        yield from _imported(node.module or "")
        for item in node.names:
            yield from _imported(f"{node.module}.{item.name}")
    elif isinstance(node, ast.Attribute):
        if node.attr in _FRAMES:
            yield "introspection"
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
        value = None if isinstance(node, ast.Delete) else node.value
        for target in targets:
            yield from _assigned(target, value, names)
    elif isinstance(node, ast.Call):
        yield from _called(node, names)
    elif isinstance(node, ast.For | ast.comprehension):
        if _is_environment(node.iter, names):
            yield "secrets"
    elif isinstance(node, ast.ClassDef):
        inherits = node.name == "ModelNew" and any(names.full(b) == "Model" for b in node.bases)
        if inherits and "Model" not in names.own:
            yield "inherits_reference"
    elif isinstance(node, ast.ExceptHandler):
        broad = node.type is None or names.full(node.type) in ("Exception", "BaseException")
        if broad and not any(isinstance(n, ast.Raise) for n in ast.walk(node)):
            yield "swallowed_exception"


def _imported(name: str) -> Iterator[str]:
    for prefix, rule in _IMPORTS.items():
        if name == prefix or name.startswith(f"{prefix}."):
            yield rule


def _assigned(target: ast.expr, value: ast.expr | None, names: _Names) -> Iterator[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from _assigned(item, None, names)
        return
    if not isinstance(target, ast.Attribute):
        return
    below = names.full(target.value)
    if below:
        yield from _set(below, target.attr, value, names)


def _set(owner: str, attribute: str, value: ast.expr | None, names: _Names) -> Iterator[str]:
    """An attribute of something that has a dotted name is set."""
    parts = owner.split(".")
    if parts[0] not in _PROTECTED:
        return
    if attribute in _LOOSENING:
        if not (isinstance(value, ast.Constant) and value.value in (False, "ieee", "none", None)):
            yield "precision_switch"
    elif not _OPTIONS.intersection(parts):
        yield "monkeypatch"


def _called(node: ast.Call, names: _Names) -> Iterator[str]:
    function = names.full(node.func)
    for name, rule in _CALLS.items():
        if function == name or (name.endswith(".") and function.startswith(name)):
            yield rule
    if function == "getattr" and len(node.args) > 1 and names.text(node.args[1]) in _FRAMES:
        yield "introspection"
    if function in ("setattr", "delattr", "builtins.setattr") and len(node.args) > 1:
        owner = names.full(node.args[0])
        attribute = names.text(node.args[1]) or "?"
        if owner:
            value = node.args[2] if len(node.args) > 2 else None
            yield from _set(owner, attribute, value, names)
    lowers = function == "torch.set_float32_matmul_precision" and node.args
    if lowers and names.text(node.args[0]) in _LOOSE:
        yield "precision_switch"
    if function in ("torch.library.Library", "torch.library.impl") and node.args:
        text = names.text(node.args[0]) or ""
        if text == "aten" or text.startswith("aten::"):
            yield "torch_override"
    if function.endswith(("environ.get", "os.getenv")) and node.args:
        text = (names.text(node.args[0]) or "").upper()
        if any(word in text for word in _SECRET_WORDS):
            yield "secrets"
    if function.startswith("subprocess.") or function in ("os.system", "os.popen"):
        words = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
        text = " ".join(str(word) for word in words)
        if words & {"pip", "ensurepip", "conda"} or "pip install" in text:
            yield "install"


def _is_environment(node: ast.expr, names: _Names) -> bool:
    """Whether something loops over the names of the environment."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("items", "keys", "values", "copy"):
            return names.full(node.func.value) == "os.environ"
        return any(_is_environment(a, names) for a in node.args)
    if isinstance(node, ast.Call):
        return any(_is_environment(a, names) for a in node.args)
    return names.full(node) == "os.environ"


def _decodes(node: ast.expr, names: _Names) -> bool:
    """Whether an expression, or the name that it is, is made by decoding data."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute | ast.Name):
            last = (
                part.attr
                if isinstance(part, ast.Attribute)
                else names.full(part).rpartition(".")[2]
            )
            if last in _DECODERS:
                return True
        if isinstance(part, ast.Name) and part.id in names.values:
            value = names.values[part.id]
            if value is not node and any(
                isinstance(p, ast.Attribute) and p.attr in _DECODERS for p in ast.walk(value)
            ):
                return True
    return False
