"""Readable, unique names for a region's tensors and values in the text of a kernel."""

import re

from kernelpro.language.graph import Graph
from kernelpro.language.regions import Load, Region

RESERVED = frozenset(
    [
        "W",
        "U",
        "b",
        "l",
        "j",
        *(
            "batch",
            "depth",
            "finish",
            "matrix",
            "top",
            "side",
            "height",
            "width",
            "block",
            "turned",
        ),
        *("strip", "packed", "kept", "panel", "panels", "partial", "rights", "start", "deep", "i"),
        *("q", "v", "MR", "NV", "NR", "MC", "NC", "KC", "T", "left_over", "scratch", "multiply"),
        *(
            "pack_left",
            "pack_right",
            "value",
            "convert",
            "shared",
            "lefts",
            "rights",
            "left",
            "right",
        ),
        *(
            "part",
            "parts",
            "copy",
            "slot",
            "from_k",
            "found",
            "more",
            "at",
            "tiles",
            "down",
            "across",
        ),
        *(
            "warp",
            "Left",
            "Right",
            "Tile",
            "TM",
            "TN",
            "TK",
            "WM",
            "WN",
            "STAGES",
            "THREADS",
            "PARTS",
        ),
        *("DOWN", "ACROSS", "HOP", "V", "tile", "along", "logistic", "mul"),
        *("PART", "LANES", "TRIPS", "u", "t", "hop", "active"),
        *("warp_top", "warp_side", "lane_row", "lane_column", "ahead", "row_of", "column_of"),
        *("left_map", "right_map", "barriers", "slots", "full", "empty"),
        *("GROUPS", "LEFT", "SLOT", "TensorMap", "u64", "operand"),
        *("a", "fetch", "next", "free_slot", "now", "to", "STEP"),
        *("landed", "phase", "PIECE", "bytes", "bulk_copy", "in_shared", "kept"),
        *(
            "params",
            "sums",
            "place",
            "places",
            "thread",
            "multiplier",
            "column",
            "half",
            "exchange",
        ),
        *("all", "workspace", "int64_t", "cute", "cutlass", "Epilogue", "Pointers"),
        *("SHARE", "mine", "writes", "joined", "turn", "groups", "from", "stage"),
        *("team", "teams", "own", "ask", "words", "number", "PLACES", "TOLD_ROWS", "RESULTS"),
        *("plainly", "leading", "rest", "a_rest", "b_rest", "sum", "none"),
        "blocks",
        "inner",
        "span",
        "pieces",
        "piece",
        "end",
        "vectors",
        "Count",
        "vf",
        "vi",
        "r",
        "c",
        "row",
        "col",
        "rows",
        "columns",
        "load",
        "store",
        "keep",
        "wide",
        "bits",
        "select",
        "stream",
        "online",
        "whole",
        "part",
        "int",
        "long",
        "float",
        "double",
        "char",
        "bool",
        "void",
        "auto",
        "const",
        "constexpr",
        "static",
        "inline",
        "struct",
        "class",
        "union",
        "template",
        "typename",
        "namespace",
        "using",
        "for",
        "while",
        "do",
        "if",
        "else",
        "switch",
        "case",
        "default",
        "break",
        "continue",
        "return",
        "goto",
        "new",
        "delete",
        "this",
        "true",
        "false",
        "operator",
        "sizeof",
        "public",
        "private",
        "protected",
        "virtual",
        "friend",
        "enum",
        "extern",
        "signed",
        "unsigned",
        "short",
        "volatile",
        "register",
        "try",
        "catch",
        "throw",
        "and",
        "or",
        "not",
        "xor",
        "n",
        "m",
        "k",
        "stage",
        "step",
        "lane",
        "group",
        "base",
        "first",
        "acc",
        "pack",
        "maximum",
        "minimum",
        "absolute",
        "relu",
        "exp",
        "log",
    ]
)


NUMBERED = re.compile(r"(v|out|acc|online|batch|stage)\d+")
"""What kernels call values of nodes, so that no tensor's own name may be like it."""


class Names:
    """Names for one region.

    Attributes:
        pointers: by node number: the kernel's parameter for that tensor.
        parameters: nodes behind the kernel's parameters, in order: reads, then pure writes.
        written: nodes of the parameters that the kernel writes.
    """

    def __init__(self, graph: Graph, region: Region) -> None:
        in_place = dict(region.in_place)
        reads = list(region.reads)
        writes = [n for n in region.outputs if n not in in_place]
        self.parameters = (*reads, *writes)
        self.written = frozenset(writes) | frozenset(in_place.values())
        self.pointers: dict[int, str] = {}
        taken = set(RESERVED)
        for number in self.parameters:
            node = graph.nodes[number]
            plain = re.sub(r"\W+", "_", node.name) or (
                f"out{writes.index(number)}" if number in writes else f"t{number}"
            )
            name = plain if plain[0].isalpha() else f"p_{plain}"
            while name in taken or (node.name and NUMBERED.fullmatch(name)):
                name += "_"
            taken.add(name)
            self.pointers[number] = name
        for output, overwritten in in_place.items():
            self.pointers[output] = self.pointers[overwritten]
        self._values: dict[Load, str] = {}
        for load in dict.fromkeys(load for _, load in region.loads):
            name = f"{self.pointers[load.node]}_{'c' if load.columns else 'r'}"
            while name in taken:
                name += "_"
            taken.add(name)
            self._values[load] = name

    def value(self, load: Load) -> str:
        """Name of a loaded element."""
        return self._values[load]


def row_index(load: Load, rows: int) -> str:
    """Index expression of the tensor's row that row r reads."""
    if load.period == 1:
        return "0"
    index = "r" if load.repeat == 1 else f"r / {load.repeat}"
    if load.repeat * load.period == rows:
        return index
    index = f"({index}) % {load.period}" if load.repeat != 1 else f"r % {load.period}"
    return f"{index} + r / {load.outer} * {load.period}" if load.outer else index


def number(value: float) -> str:
    """Write a float32 constant in C."""
    if value != value:
        return '__builtin_nanf("")'
    if value in (float("inf"), float("-inf")):
        return "INF" if value > 0 else "-INF"
    return f"{value:.9g}f" if any(ch in f"{value:.9g}" for ch in ".e") else f"{value:.9g}.0f"
