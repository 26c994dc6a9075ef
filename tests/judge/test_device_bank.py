"""Banks whose sets stay on a device, shown with the CPU in the GPU's place; and large ones."""

import gc
import weakref

import pytest
import torch

from kernelpro.judge import inputs, raw, reference
from kernelpro.judge.inputs import Bank

SOURCE = """
import torch

ROWS, COLUMNS = 24, 40


class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(COLUMNS) * scale)

    def forward(self, x, ids):
        return torch.softmax(x * self.weight, dim=1), ids + 1


def get_inputs():
    return [torch.randn(COLUMNS, ROWS).t(), torch.arange(ROWS)]


def get_init_inputs():
    return [1.5]
"""


@pytest.fixture
def on_device(monkeypatch):
    monkeypatch.setattr(inputs, "_can_stay_on", lambda device: True)


def handed_over(bank, index):
    """What a worker finds in the shared block for a set."""
    block = torch.zeros(bank.block_bytes, dtype=torch.uint8)
    bank.copy_set(index, block)
    return raw.tensors_in(raw.untree(bank.sets[index].tree, lambda at: raw.take(block, at)))


def test_each_set_goes_through_the_shared_block_with_its_strides(kit, on_device):
    bank = Bank(kit.problem(SOURCE), "cpu")
    assert bank.on_device
    assert not bank.is_large
    assert [s.name for s in bank.sets] == ["shipped-0", "shipped-1", "near-duplicate", "zero-mean"]
    for index, each in enumerate(bank.sets):
        for there, here in zip(handed_over(bank, index), each.value, strict=True):
            assert there.stride() == here.stride()
            assert torch.equal(there, here)


def test_a_bank_can_leave_the_device_and_keeps_parameters_where_they_were(kit, on_device):
    bank = Bank(kit.problem(SOURCE), "cpu")
    values, places = [s.value for s in bank.sets], bank.places
    block = raw.private_map(bank.descriptor)
    weights = [raw.take(block, place).clone() for place in places]
    bank.leave_device()
    assert not bank.on_device
    block = raw.private_map(bank.descriptor)
    assert all(torch.equal(raw.take(block, p), w) for p, w in zip(places, weights, strict=True))
    for each, value in zip(bank.sets, values, strict=True):
        found = raw.tensors_in(raw.untree(each.tree, lambda at: raw.take(block, at)))
        assert all(torch.equal(a, b) for a, b in zip(found, value, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(each.value, value, strict=True))


def test_a_bank_that_is_closed_holds_nothing_on_the_device(kit, on_device):
    bank = Bank(kit.problem(SOURCE), "cpu")
    tensor = weakref.ref(bank.sets[0].value[0])
    weight = weakref.ref(bank.reference(True).native.weight)
    bank.close()
    gc.collect()
    assert (bank.sets, tensor(), weight()) == ((), None, None)


def test_large_tensors_come_in_two_sets_whose_answers_are_computed_anew(
    kit, on_device, monkeypatch
):
    monkeypatch.setattr(inputs, "LARGE_BYTES", 1000)
    bank = Bank(kit.problem(SOURCE), "cpu")
    assert bank.is_large
    assert [s.name for s in bank.sets] == ["shipped-0", "zero-mean"]
    assert "two_input_sets" in bank.notes
    for index, each in enumerate(bank.sets):
        forms, wanted = bank.expected(True)[index], bank.expected_of(index, True)
        model = bank.reference(True).native
        exact = torch.softmax(each.value[0].double() * model.weight.double(), dim=1)
        assert torch.equal(wanted[0].values.reshape(24, 40), exact)
        assert [f.values.numel() for f in forms] == [0, 0]
        assert [(f.shape, f.dtype) for f in forms] == [(w.shape, w.dtype) for w in wanted]
        assert forms[0].limits == wanted[0].limits
    swapped = bank.expected_after_swaps(0, 12345, True)[0].values
    assert not torch.equal(swapped, bank.expected_of(0, True)[0].values)


def test_large_tensors_outside_the_domain_of_zero_mean_come_as_shipped(kit, on_device, monkeypatch):
    monkeypatch.setattr(inputs, "LARGE_BYTES", 1000)
    source = SOURCE.replace("torch.softmax(x * self.weight, dim=1)", "torch.log(x) * self.weight")
    source = source.replace("torch.randn(COLUMNS, ROWS)", "(torch.rand(COLUMNS, ROWS) + 0.5)")
    bank = Bank(kit.problem(source), "cpu")
    assert [s.name for s in bank.sets] == ["shipped-0", "shipped-1"]
    assert set(bank.notes) == {"two_input_sets", "zero_mean_skipped"}


def test_a_large_output_in_an_input_s_memory_is_copied(kit, on_device, monkeypatch):
    monkeypatch.setattr(reference, "LARGE_BYTES", 1000)
    source = SOURCE.replace(
        "return torch.softmax(x * self.weight, dim=1), ids + 1",
        "x.mul_(self.weight)\n        return x, ids",
    )
    bank = Bank(kit.problem(source), "cpu")
    before = bank.sets[0].value[0].clone()
    outputs = bank.reference(True).run(bank.sets[0].value)
    assert torch.equal(bank.sets[0].value[0], before)
    assert bank.mutates == {0}
    assert torch.equal(outputs[0], before * bank.reference(True).native.weight)
