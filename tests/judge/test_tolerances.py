import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelpro.errors import JudgeError
from kernelpro.judge.numerics import compare, expect
from kernelpro.judge.tolerances import POLICIES, in_words, rule_for

seeds = st.integers(0, 2**31)


def rounded(tensor, bits):
    """Round float32 to so many explicit bits of the mantissa, to nearest."""
    drop = 23 - bits
    whole = tensor.contiguous().view(torch.int32) + (1 << (drop - 1))
    return (whole >> drop << drop).view(torch.float32)


def accepts(policy, seed, bits, inner):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(64, inner, generator=generator)
    b = torch.randn(inner, 64, generator=generator)
    expected = expect(a @ b, a.double() @ b.double(), policy)
    found = (rounded(a, bits).double() @ rounded(b, bits).double()).float()
    return compare(found, expected, inputs="test", output=0)[0].ok


@settings(max_examples=20, deadline=None)
@given(seeds, st.sampled_from([64, 1024]))
def test_each_policy_accepts_its_own_operands_and_refuses_the_next_coarser(seed, inner):
    assert not accepts("strict", seed, 10, inner)
    assert accepts("tf32", seed, 10, inner)
    assert not accepts("tf32", seed, 7, inner)
    assert accepts("bf16", seed, 7, inner)
    assert not accepts("bf16", seed, 4, inner)


def test_a_looser_policy_is_never_stricter_and_float64_is_always_strict():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        limits = [rule_for(dtype, policy).rms_scale for policy in POLICIES]
        assert limits == sorted(limits)
    assert len({rule_for(torch.float64, policy) for policy in POLICIES}) == 1


def test_an_unknown_policy_is_told_with_the_known_ones():
    with pytest.raises(JudgeError, match="strict, tf32, bf16"):
        rule_for(torch.float32, "fast")


def test_the_rule_is_said_in_words():
    assert "1.0e-03 of the output's rms" in in_words(torch.float32, "tf32")
    assert in_words(torch.int64, "strict") == "int64: equal"
    assert "1.0e-05" in in_words(torch.complex64, "strict")
