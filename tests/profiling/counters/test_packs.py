import pytest

from kernelpro.profiling.counters import packs


@pytest.mark.parametrize(
    "name",
    [
        "launch__grid_size",
        "device__attribute_multiprocessor_count",
        "derived__memory_l2_theoretical_sectors_global_excessive",
        "group:smsp__pcsamp_warp_stall_reasons",
        "breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "smsp__pcsamp_sample_count",
        "sass__inst_executed_per_opcode",
        "sass.spill_loads",
        "source.stall.long__scoreboard",
        "memory_l2_theoretical_sectors_global",
        "system.gap_share",
        "cpu.time_us",
    ],
)
def test_what_no_hardware_counts_is_no_counter(name):
    assert not packs.is_counter(name)


def test_the_lite_pack_comes_first_and_holds_the_duration():
    names = {"smsp__inst_executed.sum", packs.LITE[1], "launch__grid_size"}
    assert packs.plan(names) == ((packs.DURATION, packs.LITE[1]), ("smsp__inst_executed.sum",))
    assert packs.plan({"launch__grid_size"}) == ()
    assert packs.plan(set(packs.LITE)) == (packs.LITE,)


def test_units_are_those_that_a_name_tells():
    assert packs.unit("sm__throughput.avg.pct_of_peak_sustained_elapsed") == "%"
    assert packs.unit(packs.DURATION) == "ns"
    assert packs.unit("dram__bytes_read.sum") == "bytes"
    assert packs.unit("dram__bytes_read.sum.per_second") == "1/s"
    assert packs.unit("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio") == ""
    assert packs.unit("smsp__inst_executed.sum") == ""
