"""Make a small .ncu-rep of a large one: some of its kernels, fewer metrics and no page layout.

python tests/data/reduce_report.py zoo_full.ncu-rep tests/data/zoo.ncu-rep \\
    p_uncoalesced p_bank f_bank p_diverge

zoo_full.ncu-rep was recorded from twelve kernels, nine of which have a fault each, on an H100 with
`ncu --set full --import-source yes --clock-control none --cache-control all`. What is kept is kept
as it was; dropped are time series, tables of the user interface, minima, and peaks.
"""

import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

BLOCK_SOURCES, BLOCK_RESULTS, BLOCK_STRINGS, BLOCK_PAYLOAD = 1, 2, 4, 5
RESULT_NAME, RESULT_METRIC, RESULT_SECTION, METRIC_NAME = 6, 13, 17, 1
DROPPED = re.compile(
    r"^group:(?!smsp__pcsamp_warp_stall_reasons$)|^breakdown:|^profiler__|^numa__"
    r"|occupancy_per_|_not_issued$|\.min\b|\.min_rate$|peak_sustained(_\w+)?(\.per_second)?$"
    r"|\.(max|sum)\.(pct|per)_|\.sum_rate$|_with_modifier_|_per_opcode_category$|_true_per_opcode$"
    r"|^derived__(avg_thread|derivative|memory_l1_conflicts)|^pmsampling:|thread_executed"
    r"|attribute_maximum_|attribute_gpu_pci_"
)
KEPT = re.compile(r"pct_of_peak_sustained_(elapsed|active)$")


def number(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place


def written(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def fields(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, content and raw bytes of each field of a protocol buffer."""
    place = 0
    while place < len(data):
        start = place
        key, place = number(data, place)
        if key & 7 == 0:
            value, place = number(data, place)
            content = written(value)
        else:
            length = {1: 8, 5: 4}.get(key & 7, 0)
            if not length:
                length, place = number(data, place)
            content, place = data[place : place + length], place + length
        yield key >> 3, content, data[start:place]


def reduce(data: bytes, kernels: list[str]) -> bytes:
    names: list[str] = []
    place = 4
    header, place = message(data, place)
    out = [data[:4], packed(header)]
    while place < len(data):
        head, place = message(data, place)
        parts = list(fields(head))
        values = {key: content for key, content, _ in parts}
        for key, content, _ in parts:
            if key == BLOCK_STRINGS:
                names += [text.decode() for n, text, _ in fields(content) if n == 1]
        end = place + number(values.get(BLOCK_PAYLOAD, b"\0"), 0)[0]
        sources = number(values.get(BLOCK_SOURCES, b"\0"), 0)[0]
        payload, results = b"", 0
        while place < end:
            body, place = message(data, place)
            if sources > 0:
                sources -= 1
                payload += packed(body)
            elif name_of(body) in kernels:
                payload += packed(smaller(body, names))
                results += 1
        changed = {BLOCK_PAYLOAD: len(payload), BLOCK_RESULTS: results}
        head = b"".join(
            bytes([key << 3]) + written(changed[key]) if key in changed else raw
            for key, _, raw in parts
        )
        out += [packed(head), payload]
    return b"".join(out)


def name_of(result: bytes) -> str:
    return next(content.decode() for key, content, _ in fields(result) if key == RESULT_NAME)


def smaller(result: bytes, names: list[str]) -> bytes:
    kept = []
    for key, content, raw in fields(result):
        if key == RESULT_METRIC:
            identity = next(value for n, value, _ in fields(content) if n == METRIC_NAME)
            name = names[number(identity, 0)[0]]
            if DROPPED.search(name) and not (KEPT.search(name) and ".avg." in name):
                continue
            if ".TriageCompute." in name:
                continue
        if key != RESULT_SECTION:
            kept.append(raw)
    return b"".join(kept)


def message(data: bytes, place: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from("<I", data, place)
    return data[place + 4 : place + 4 + length], place + 4 + length


def packed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(reduce(Path(sys.argv[1]).read_bytes(), sys.argv[3:]))
