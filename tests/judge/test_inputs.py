import pytest
import torch

from kernelpro.errors import JudgeError
from kernelpro.judge.inputs import Bank, near_duplicate, perturb, zero_mean
from kernelpro.judge.numerics import compare


def bank_of(kit, source):
    return Bank(kit.problem(source), "cpu")


def make(forward, inputs, init="return []", extra=""):
    return f"""
import torch

class Model(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        {extra or "pass"}
    def forward(self, *x):
        {forward}

def get_inputs():
    return {inputs}

def get_init_inputs():
    {init}
"""


def test_the_sets_are_two_shipped_ones_a_near_duplicate_and_a_zero_mean_one(kit):
    bank = bank_of(kit, make("return x[0] * 2", "[torch.rand(40, 40), torch.arange(9)]"))
    names = [s.name for s in bank.sets]
    assert names == ["shipped-0", "shipped-1", "near-duplicate", "zero-mean"]
    shipped, near, signed = (bank.sets[n].value[0] for n in (1, 2, 3))
    assert torch.equal(near.view(-1)[:64], shipped.view(-1)[:64])
    assert torch.equal(near.view(-1)[-64:], shipped.view(-1)[-64:])
    assert not torch.equal(near, shipped)
    assert torch.equal(near.view(-1).sort().values, shipped.view(-1).sort().values)
    assert abs(float(signed.mean())) < 0.1
    assert float(bank.sets[0].value[0].min()) >= 0
    assert all(torch.equal(s.value[1], torch.arange(9)) for s in bank.sets)
    bank.close()


def test_a_restricted_domain_skips_the_zero_mean_set_with_a_note(kit):
    for forward in ("return x[0].log()", "return torch.nn.functional.binary_cross_entropy(*x)"):
        bank = bank_of(kit, make(forward, "[torch.rand(20, 20) * 0.9 + 0.05] * 2"))
        assert len(bank.sets) == 3
        assert "zero_mean_skipped" in bank.notes
        bank.close()


def test_two_banks_have_different_secrets(kit):
    source = make("return x[0] * 2", "[torch.rand(300)]")
    one, two = bank_of(kit, source), bank_of(kit, source)
    assert not torch.equal(one.sets[0].value[0], two.sets[0].value[0])
    assert one.seed != two.seed
    one.close()
    two.close()


def test_structure_survives_the_zero_mean_and_near_duplicate_sets():
    generator = torch.Generator().manual_seed(0)
    triangle = torch.rand(30, 30).triu()
    square = torch.rand(30, 30)
    symmetric = square + square.t()
    mask = (torch.rand(500) > 0.5).float()
    for change in (zero_mean, near_duplicate):
        assert torch.equal(change(triangle, generator) == 0, triangle == 0)
        changed = change(symmetric, generator)
        assert torch.equal(changed, changed.t())
    assert torch.equal(zero_mean(mask, generator), mask)
    assert torch.equal(near_duplicate(torch.arange(500), generator), torch.arange(500))


def test_the_zero_mean_set_keeps_rms_type_and_strides():
    tensor = (torch.rand(64, 32) + 3).to(torch.bfloat16).t()
    changed = zero_mean(tensor, torch.Generator().manual_seed(0))
    assert changed.dtype == tensor.dtype
    assert changed.stride() == tensor.stride()
    rms = [float(t.float().square().mean().sqrt()) for t in (changed, tensor)]
    assert rms[0] == pytest.approx(rms[1], rel=0.1)


def test_parameters_that_start_as_ones_and_zeros_are_perturbed_alike_for_one_seed():
    one, two, plain = (torch.nn.LayerNorm(64) for _ in range(3))
    perturb(one, 5)
    perturb(two, 5)
    for a, b, c in zip(one.parameters(), two.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)
        assert 0.001 < float((a - c).detach().square().mean().sqrt()) < 0.2


def test_expectations_after_swaps_follow_the_swapped_inputs(kit):
    bank = bank_of(kit, make("return x[0].cumsum(0)", "[torch.rand(300)]"))
    before = bank.expected(True)[0][0]
    after = bank.expected_after_swaps(0, 1234, True)[0]
    check, _ = compare(after.values.float(), before, inputs="x", output=0)
    assert not check.ok
    bank.close()


def test_timed_calls_mix_rows_of_two_sets_even_where_a_sum_hides_a_swap(kit):
    bank = bank_of(kit, make("return x[0].mean()", "[torch.rand(64, 64)]"))
    assert bank.spliceable == [0]
    answers = {float(bank.expected_after_swaps(0, salt, True)[0].values) for salt in range(8)}
    assert len(answers) >= 5  # equal cuts may meet
    bank.close()


def test_rows_of_whole_numbers_are_mixed_too_but_not_of_offsets_and_symmetric_matrices(kit):
    inputs = "[torch.randint(0, 9, (99,)), torch.arange(99), torch.randperm(99), torch.eye(9) + 1]"
    bank = bank_of(kit, make("return x[0] * 1.5, x[3] * 2", inputs))
    assert bank.spliceable == [0]
    bank.close()


def test_lowest_bits_are_turned_over_where_that_stays_in_the_domain(kit):
    inputs = "[torch.rand(64, 64), torch.eye(9) + 1, torch.randint(0, 9, (99,))]"
    bank = bank_of(kit, make("return x[0] * 2, x[1] + 1, x[2] * 1.5", inputs))
    assert bank.dithered == [0]
    bank.close()
    strict = "assert (x[0] * 4096).frac().abs().max() == 0\n        return x[0] * 2"
    values = "[torch.randint(-9999, 9999, (64, 64)) / 4096]"
    bank = bank_of(kit, make(strict, values))
    assert bank.dithered == []
    assert "dither_skipped" in bank.notes
    bank.close()


def test_the_digest_of_the_seeds_differs_from_bank_to_bank_and_shows_no_seed(kit):
    source = make("return x[0] * 2", "[torch.rand(9)]")
    one, two = bank_of(kit, source), bank_of(kit, source)
    assert one.seeds_digest != two.seeds_digest
    assert str(one.seed) not in one.seeds_digest
    one.close()
    two.close()


def test_memory_that_the_reference_shares_with_its_inputs_is_known(kit):
    bank = bank_of(kit, make("return x[0].t(), x[0].mean().expand(7)", "[torch.rand(5, 6)]"))
    assert bank.shares == (frozenset([0]), frozenset())
    assert bank.expands == (False, True)
    bank.close()


def test_a_type_without_float64_kernels_falls_back_to_the_references_own(kit):
    forward = "return (x[0].half() @ self.w.half()).float()"
    bank = bank_of(kit, make(forward, "[torch.rand(8, 8)]", extra="self.w = torch.ones(8, 8)"))
    assert bank.expected(True)[0][0].dtype == torch.float32
    bank.close()


@pytest.mark.parametrize(
    ("forward", "inputs", "init", "says"),
    [
        ("raise ValueError('boom')", "[torch.rand(3)]", "return []", "raised ValueError"),
        ("return 3", "[torch.rand(3)]", "return []", "must return a tensor"),
        ("return torch.nn.functional.dropout(x[0])", "[torch.rand(99)]", "return []", "different"),
        ("return x[0]", "[torch.rand(int(torch.randint(2, 99, ())))]", "return []", "shapes"),
        ("return x[0]", "[torch.rand(3)]", "return [{1, 2}]", "type set"),
    ],
)
def test_a_reference_that_cannot_be_judged_is_told_in_one_sentence(
    kit, forward, inputs, init, says
):
    with pytest.raises(JudgeError, match=says):
        bank_of(kit, make(forward, inputs, init))


def test_a_result_that_is_rounding_noise_is_judged_by_the_noise(kit):
    forward = "y = torch.nn.functional.layer_norm(x[0], (512,)); return y, y.sum(-1) * 0.01"
    bank = bank_of(kit, make(forward, "[torch.randn(6, 512)]"))
    _, noise = bank.expected(True)[0]
    assert float(noise.values.abs().max()) < 1e-15  # float64's, and not float32's own
    x = bank.sets[0].value[0]
    y = torch.nn.functional.layer_norm(x, (512,))
    other_order = y.reshape(6, 16, 32).sum(1).sum(-1) * 0.01
    check, _ = compare(other_order, noise, inputs="shipped-0", output=1)
    assert check.ok
    check, _ = compare(other_order + 1e-4, noise, inputs="shipped-0", output=1)
    assert not check.ok


def test_float64_that_is_another_function_is_left_out(kit):
    forward = "return x[0] * (2.0 if x[0].dtype == torch.float64 else 3.0)"
    bank = bank_of(kit, make(forward, "[torch.randn(6, 512)]"))
    (expected,) = bank.expected(True)[0]
    assert torch.equal(expected.values.float().view(6, 512), bank.sets[0].value[0] * 3.0)
    assert expected.rms_ref == 0.0
