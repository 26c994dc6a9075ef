import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro.errors import KernelproError
from kernelpro.profiling.counters import ncu_csv

PAGE = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","device__attribute_display_name","dram__bytes_read.sum",'
    '"sm__throughput.avg.pct_of_peak_sustained_elapsed","launch__func_cache_config"\n'
    '"","","","","","","","","","","","","byte","%",""\n'
    '"0","7","zoo","host","void f<int>(float *, int)","1","7","(256, 1, 1)","(8, 1, 1)","0","9.0",'
    '"NVIDIA H100","1,048,576","12.5","CachePreferNone"\n'
    '"1","7","zoo","host","g(float *)","1","7","(32, 1, 1)","(1, 1, 1)","0","9.0","NVIDIA H100",'
    '"n/a","nan","CachePreferNone"\n'
)


def test_each_kernel_of_the_page_has_its_numbers_with_units():
    first, second = ncu_csv.parse("==PROF== Connected to process 7\n" + PAGE)
    assert first.name == "void f<int>(float *, int)"
    assert first.device == "NVIDIA H100"
    assert first.metrics["dram__bytes_read.sum"].value == 1048576
    assert first.metrics["dram__bytes_read.sum"].unit == "byte"
    assert set(first.metrics) == {
        "dram__bytes_read.sum",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    }
    assert {metric.value for metric in second.metrics.values()} == {None}
    assert {metric.how for metric in second.metrics.values()} == {"absent"}


def test_a_page_without_kernels_has_no_rows():
    assert ncu_csv.parse("\n".join(PAGE.splitlines()[:2])) == ()


@pytest.mark.parametrize(
    "text", ["", "==ERROR== broken", "a,b\n1,2\n", '==WARNING== no "Kernel Name"\n']
)
def test_another_text_is_refused(text):
    with pytest.raises(KernelproError, match="no raw page"):
        ncu_csv.parse(text)


words = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20)


@given(
    st.lists(
        st.tuples(words, st.floats(allow_nan=False, allow_infinity=False, width=32)), max_size=5
    )
)
def test_what_was_written_is_read_back(kernels):
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow(["ID", "Kernel Name", "x__y.sum"])
    writer.writerow(["", "", "byte"])
    for index, (name, value) in enumerate(kernels):
        writer.writerow([index, "k" + name, f"{value:,.6f}"])
    rows = ncu_csv.parse(out.getvalue())
    assert [row.name for row in rows] == ["k" + name for name, _ in kernels]
    for row, (_, value) in zip(rows, kernels, strict=True):
        assert row.metrics["x__y.sum"].value == pytest.approx(value, rel=1e-6, abs=1e-6)
        assert row.metrics["x__y.sum"].unit == "byte"


@given(st.text(max_size=300))
def test_any_text_is_a_page_or_a_sentence(text):
    for whole in (text, '"ID","Kernel Name","a__b.sum"\n' + text):
        try:
            rows = ncu_csv.parse(whole)
        except KernelproError:
            rows = ()
        assert all(isinstance(row.name, str) for row in rows)
