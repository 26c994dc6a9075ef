import pytest

from kernelpro.profiling.sass import facts
from tests.profiling.sass.listings import CHIPS, kernel, text, value

# A kernel, a fact of it, and the value it must have on both chips.
EXACT = [
    ("bad_fp64_instructions", "fp64", 3),
    ("fix_fp64_instructions", "fp64", 0),  # sinf's slow path has some of its own
    ("fix_fp64_instructions", "range_reductions", 1),
    ("fix_fp64_instructions", "dynamic_local", 0),
    ("bad_dynamic_local_array", "spills", 0),
    ("fix_spill_instructions", "spills", 0),
    ("bad_spill_instructions", "dynamic_local", 0),
    ("bad_access_width", "load_bytes_4", 4),
    ("bad_access_width", "narrow_adjacent", 8),
    ("fix_access_width", "load_bytes_16", 1),
    ("fix_access_width", "narrow_share", 0),
    ("bad_readonly_path", "readonly_missed_share", 1),
    ("fix_readonly_path", "readonly_missed", 0),
    ("bad_load_batching", "loads_in_flight", 1),
    ("fix_load_batching", "loads_in_flight", 8),
    ("bad_atomic_form", "cas_loops", 1),
    ("fix_atomic_form", "atomics_returning", 0),
    ("bad_no_async_copy", "staged_copies", 1),
    ("fix_no_async_copy", "staged_copies", 0),
    ("fix_no_async_copy", "async_drained", 0),
    ("bad_pipeline_depth", "async_drained", 1),
    ("bad_int_div_mod", "int_divisions_64", 0),
    ("fix_int_div_mod", "int_divisions", 0),
    ("bad_slow_math", "range_reductions", 1),
    ("bad_slow_math", "slowpath_calls", 1),
    ("fix_slow_math", "slowpath_calls", 0),
    ("bad_device_calls", "calls_in_loop", 1),
    ("fix_device_calls", "calls", 0),
    ("bad_fences", "fences_in_loop", 1),
    ("fix_fences", "fences_in_loop", 0),
    ("fix_fences", "fences", 1),
    ("bad_mma_kind", "tensor_anywhere", 0),
    ("bad_scalar_half", "half_scalar_share", 1),
    ("fix_scalar_half", "half_scalar", 0),
    ("bad_barrier_density", "barriers_per_iteration", 2),
    ("fix_barrier_density", "shuffles", 9),
    ("bad_generic_addressing", "generic", 1),
    ("fix_static_issue_cost", "ffma", 16),
]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("name", "fact", "expected"), EXACT)
def test_a_fact_is_what_the_source_says(chip, name, fact, expected):
    assert value(chip, name, fact) == expected


@pytest.mark.parametrize("chip", CHIPS)
def test_facts_that_depend_on_the_compiler_lie_in_their_range(chip):
    assert value(chip, "bad_spill_instructions", "spills_in_loop") > 20
    assert value(chip, "bad_dynamic_local_array", "dynamic_local_in_loop") >= 1
    assert value(chip, "bad_int_div_mod", "int_divisions") >= 1
    assert value(chip, "bad_shared_width", "shared_adjacent") == 8
    assert value(chip, "bad_divergent_structure", "predicated_share") > 0.3
    assert value(chip, "bad_type_conversions", "conversion_share") > 0.2
    assert 0 < value(chip, "bad_static_issue_cost", "math_share") < 0.2
    assert value(chip, "fix_static_issue_cost", "math_share") > 0.4
    assert value(chip, "fix_mma_kind", "hmma") > 0
    assert value(chip, "fix_mma_kind", "hgmma_anywhere") == 0


@pytest.mark.parametrize("chip", CHIPS)
def test_the_zero_idiom_is_no_arithmetic(chip):
    shown = kernel(chip, "bad_fp64_instructions").metrics
    assert shown["sass.half_math"].value == 0
    assert "HFMA2.MMA" in text(chip)


@pytest.mark.parametrize("chip", CHIPS)
def test_notes_say_where(chip):
    metrics = kernel(chip, "bad_dynamic_local_array").metrics
    assert metrics["sass.dynamic_local_in_loop"].note.startswith("kernels.cu:")
    assert " LDL " in metrics["sass.dynamic_local_in_loop"].note
    assert all(metric.how == "static" for metric in metrics.values())
    for name, metric in metrics.items():
        if name.startswith("sass.hot_loop"):
            assert "kernels.cu:" in metric.note


def test_a_listing_without_encodings_leaves_out_what_they_tell():
    bare = "\n".join(x for x in text("sm_80").splitlines() if not x.startswith("/* 0x"))
    found = {k.name: k.metrics for k in facts.of_listing(bare)}
    assert "sass.loads_in_flight" not in found["bad_load_batching"]
    assert "sass.stall_cycles" not in found["bad_load_batching"]
    assert found["bad_load_batching"]["sass.narrow_share"].value == 1


def test_registers_of_one_bank_conflict_unless_one_is_cached():
    def share(*lines):
        body = "".join(f" /*{16 * n:04x}*/ {line} ;\n" for n, line in enumerate(lines))
        (found,) = facts.of_listing("//---- .text.f ----\n" + body)
        return found.metrics["sass.register_bank_share"].value

    assert share("FFMA R8, R2, R4, R6", "FFMA R9, R2, R3, R6", "EXIT") == 0.5
    assert share("FFMA R8, R2.reuse, R4, R7", "FFMA R9, R2, R4, R6", "EXIT") == 0


def test_regions_around_a_slow_path_of_the_compiler_are_no_divergence():
    lines = """\
 /*0000*/ BSSY B0, `(.L_x_1) ;
 /*0010*/ @P0 BRA `(.L_x_2) ;
 /*0020*/ STG.E [R2.64], R4 ;
.L_x_2:
 /*0030*/ BSYNC B0 ;
.L_x_1:
 /*0040*/ BSSY B1, `(.L_x_3) ;
 /*0050*/ CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_rn_f32_slowpath) ;
 /*0060*/ BSYNC B1 ;
.L_x_3:
 /*0070*/ @!P1 BRA 0x0 ;
 /*0080*/ EXIT ;
$__internal_0_$__cuda_sm20_div_rn_f32_slowpath:
 /*0090*/ RET.REL.NODEC R8 `(.L_x_3) ;
"""
    (found,) = facts.of_listing("//---- .text.f ----\n" + lines)
    assert found.metrics["sass.divergent_regions"].value == 1
    assert found.metrics["sass.slowpath_calls"].value == 1
    assert found.metrics["sass.calls"].value == 0


def test_loads_of_a_function_that_was_not_inlined_are_not_judged_by_their_base():
    lines = """\
 /*0000*/ CALL.REL.NOINC `(total) ;
 /*0010*/ IMAD.WIDE R2, R0, 0x4, c[0x0][0x160] ;
 /*0020*/ STG.E [R2.64], R4 ;
 /*0030*/ EXIT ;
total:
 /*0040*/ LDG.E R4, [R6.64] ;
 /*0050*/ FADD R5, R5, R4 ;
 /*0060*/ @P0 BRA 0x40 ;
 /*0070*/ RET.REL.NODEC R20 0x10 ;
"""
    (found,) = facts.of_listing("//---- .text.f ----\n" + lines)
    assert found.metrics["sass.global_accesses"].value == 1
    assert found.metrics["sass.readonly_missed"].value == 0


@pytest.mark.parametrize(
    "line", ["S2R R0", "MOV R0", "LDC R0", "IMAD.MOV R0", "LDG R0", "LEA R0, R2, R3, 0xffffffff"]
)
def test_instructions_that_no_disassembler_prints_are_read(line):
    (found,) = facts.of_listing(f"//---- .text.f ----\n /*0000*/ {line} ;\n /*0010*/ EXIT ;\n")
    assert found.metrics["sass.instructions"].value == 2


def test_a_branch_into_a_wide_gap_leads_behind_it():
    (found,) = facts.of_listing(
        "//---- .text.f ----\n /*0000*/ BRA 0x10 ;\n /*fffffff0*/ FADD R0, R0, R1 ;\n"
    )
    assert found.metrics["sass.instructions"].value == 2
