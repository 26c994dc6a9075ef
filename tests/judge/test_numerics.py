import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelpro.judge.numerics import CPU_CHUNK_ELEMENTS, compare, expect
from kernelpro.judge.tolerances import rule_for

seeds = st.integers(0, 2**31)
scales = st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6])


def check_of(found, native, double):
    return compare(found, expect(native, double), inputs="test", output=0)


def matmul(seed, inner=256):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(32, inner, generator=generator)
    b = torch.randn(inner, 32, generator=generator)
    return a, b, a @ b, a.double() @ b.double()


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_another_summation_order_is_right(seed):
    a, b, native, double = matmul(seed)
    half = a.shape[1] // 2
    found = a[:, :half] @ b[:half] + a[:, half:] @ b[half:]
    assert check_of(found, native, double)[0].ok


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_half_precision_inside_a_float32_product_is_wrong(seed):
    a, b, native, double = matmul(seed)
    for dtype in (torch.float16, torch.bfloat16):
        found = (a.to(dtype).double() @ b.to(dtype).double()).float()
        check, mismatch = check_of(found, native, double)
        assert not check.ok
        assert mismatch is not None


@settings(max_examples=25, deadline=None)
@given(seeds, scales)
def test_the_verdict_does_not_depend_on_the_scale_of_the_output(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    double = torch.randn(1000, generator=generator, dtype=torch.float64) * scale
    native = double.float()
    assert check_of(native.clone(), native, double)[0].ok
    assert not check_of(native * (1 + 1e-3), native, double)[0].ok
    assert not check_of(torch.zeros_like(native), native, double)[0].ok


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(0, 3 * CPU_CHUNK_ELEMENTS - 1))
def test_one_wrong_element_is_found_and_named_wherever_it_is(seed, place):
    generator = torch.Generator().manual_seed(seed)
    native = torch.randn(3, CPU_CHUNK_ELEMENTS, generator=generator)
    found = native.clone()
    found.view(-1)[place] += 0.01
    check, mismatch = check_of(found, native, native.double())
    assert not check.ok
    assert mismatch.index == (place // CPU_CHUNK_ELEMENTS, place % CPU_CHUNK_ELEMENTS)
    assert mismatch.found == pytest.approx(mismatch.expected + 0.01, rel=1e-3, abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_the_references_own_error_widens_the_limits(seed):
    generator = torch.Generator().manual_seed(seed)
    double = torch.randn(1000, generator=generator, dtype=torch.float64)
    noise = torch.randn(1000, generator=generator, dtype=torch.float64) * 1e-4
    found = (double + 5 * noise).float()
    assert not check_of(found, double.float(), double)[0].ok
    assert check_of(found, (double + noise).float(), double)[0].ok


odd_values = st.sampled_from([math.nan, math.inf, -math.inf])


@settings(max_examples=25, deadline=None)
@given(seeds, odd_values, st.integers(0, 99))
def test_non_finite_values_must_stand_where_the_reference_has_them(seed, value, place):
    generator = torch.Generator().manual_seed(seed)
    plain = torch.randn(100, generator=generator)
    odd = plain.clone()
    odd[place] = value
    assert check_of(odd.clone(), odd, odd.double())[0].ok
    for found, native in ((odd, plain), (plain, odd)):
        check, mismatch = check_of(found, native, native.double())
        assert not check.ok
        assert mismatch.index == (place,)


@settings(max_examples=10, deadline=None)
@given(odd_values, odd_values)
def test_non_finite_values_must_be_of_the_references_kind(one, two):
    native, found = torch.tensor([1.0, one]), torch.tensor([1.0, two])
    same = one == two or (math.isnan(one) and math.isnan(two))
    assert check_of(found, native, native.double())[0].ok == same


def test_a_finite_element_beside_a_nan_is_still_compared():
    native = torch.tensor([1.0, math.nan, 3.0])
    assert not check_of(torch.tensor([1.1, math.nan, 3.0]), native, native.double())[0].ok


def test_all_nan_is_wrong_when_the_reference_is_finite():
    native = torch.randn(64)
    assert not check_of(torch.full((64,), math.nan), native, native.double())[0].ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_type_result_computed_in_float32_is_right(dtype):
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(64, 512, generator=generator).to(dtype)
    b = torch.randn(512, 64, generator=generator).to(dtype)
    double = a.double() @ b.double()
    found = (a.float() @ b.float()).to(dtype)
    assert check_of(found, double.to(dtype), double)[0].ok
    assert not check_of(found * 1.05, double.to(dtype), double)[0].ok


def test_integers_must_be_equal_and_the_first_difference_is_named():
    native = torch.arange(12).reshape(3, 4)
    assert check_of(native.clone(), native, native)[0].ok
    found = native.clone()
    found[1, 2] = 0
    check, mismatch = check_of(found, native, native)
    assert not check.ok
    assert (mismatch.index, mismatch.expected, mismatch.found) == ((1, 2), 6.0, 0.0)


def test_bools_and_complex_numbers_are_compared():
    flags = torch.tensor([True, False, True])
    assert check_of(flags.clone(), flags, flags)[0].ok
    assert not check_of(~flags, flags, flags)[0].ok
    wave = torch.randn(64, dtype=torch.complex64)
    assert check_of(wave.clone(), wave, wave.to(torch.complex128))[0].ok
    assert not check_of(wave.conj().resolve_conj(), wave, wave.to(torch.complex128))[0].ok


def test_an_empty_output_and_a_zero_output_are_compared_without_a_fault():
    empty = torch.empty(0, 4)
    assert check_of(empty.clone(), empty, empty.double())[0].ok
    zero = torch.zeros(8)
    assert check_of(zero.clone(), zero, zero.double())[0].ok
    assert not check_of(zero + 1e-20, zero, zero.double())[0].ok


def test_float64_is_held_to_float64():
    double = torch.randn(256, dtype=torch.float64)
    assert check_of(double * (1 + 1e-15), double, double)[0].ok
    assert not check_of(double.float().double(), double, double)[0].ok
    assert rule_for(torch.float64).rms_scale < 1e-9


def test_where_float64_answers_another_whole_number_either_is_right():
    native, double = torch.tensor([3, 5, 7]), torch.tensor([3, 6, 7])
    assert check_of(torch.tensor([3, 5, 7]), native, double)[0].ok
    assert check_of(torch.tensor([3, 6, 7]), native, double)[0].ok
    assert not check_of(torch.tensor([3, 4, 7]), native, double)[0].ok
    assert not check_of(torch.tensor([4, 6, 7]), native, double)[0].ok
