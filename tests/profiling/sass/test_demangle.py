import shutil

import pytest

from kernelpro.profiling.names import short
from kernelpro.profiling.sass import demangle

NAMES = {
    "copy": "copy",
    "_Z6callerIfEvPKT_PS0_i": "caller<float>",
    "_Z4gemmILi128ELin2EfEvPf": "gemm<128, -2, float>",
    "_ZN3abc3defEPf": "abc::def",
    "_ZN3abc3xyzIiEEvi": "abc::xyz<int>",
}


@pytest.mark.parametrize("symbol", NAMES)
def test_simple_names_are_read_without_a_tool(symbol):
    assert demangle.plain(symbol) == NAMES[symbol]


@pytest.mark.parametrize("symbol", ["_Z", "_ZN", "_Zzz", "_Z9", "_ZNIE", "_Z3fooILXE"])
def test_what_cannot_be_read_keeps_a_name(symbol):
    assert demangle.plain(symbol)


def test_without_a_tool_the_short_names_are_the_same(monkeypatch):
    known = ["copy", "_Z6callerIfEvPKT_PS0_i", "_ZN3abc3xyzIiEEvi"]
    with_tool = [short(n) for n in demangle.demangled(known)]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert [short(n) for n in demangle.demangled(known)] == with_tool
