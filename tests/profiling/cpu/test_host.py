import json

import pytest

from kernelpro.profiling.cpu import host


def test_fresh_pages_show_as_page_faults():
    pages = 2048

    def fresh():
        import mmap

        with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
            for at in range(0, len(memory), mmap.PAGESIZE):
                memory[at] = 1

    seen = host.collect_resources(fresh)
    json.dumps(seen)
    assert seen["minor_faults"] >= pages / 2  # fewer only where the system maps larger pages
    assert seen["calls"] >= 3
    buffer = bytearray(1 << 16)
    assert host.collect_resources(lambda: buffer.count(1))["minor_faults"] < 16


@pytest.mark.parametrize(
    ("flags", "width"),
    [("sse2 avx avx2", 32), ("sse2 avx2 avx512f", 64), ("sse2", 16), ("", 0)],
)
def test_vector_width_is_read_off_the_processors_flags(flags, width):
    assert host.vector_bytes(f"processor\t: 0\nflags\t\t: {flags}\n") == width
    assert host.vector_bytes("Features\t: fp asimd\n") == 16
