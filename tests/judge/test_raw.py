import json
import mmap
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelpro.judge import raw


def through_a_block(value):
    store = raw.Store()
    tree = json.loads(json.dumps(store.tree(value)))
    descriptor = store.seal("test")
    try:
        block = raw.private_map(descriptor)
    finally:
        os.close(descriptor)
    return raw.untree(tree, lambda place: raw.take(block, place))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 5),
        torch.randn(5, 3).t(),
        torch.randn(2, 3, 4).to(memory_format=torch.contiguous_format).permute(2, 0, 1),
        torch.arange(7),
        torch.tensor([True, False]),
        torch.randn(4, 4).to(torch.bfloat16),
        torch.randn(3, dtype=torch.complex64),
        torch.tensor(1.5),
        torch.empty(0, 3),
        torch.randn(6, 6)[::2, ::3],
        torch.randn(1, 5).expand(4, 5),
    ],
)
def test_a_tensor_crosses_as_bytes_with_its_strides_if_they_leave_no_gaps(tensor):
    again = through_a_block(tensor)
    assert again.dtype == tensor.dtype
    assert torch.equal(again, tensor)
    assert again.stride() == raw.dense(tensor).stride()


def test_containers_and_plain_values_cross_unchanged():
    value = {"a": [1, 2.5, None, "x", True], "b": (torch.ones(2), {"c": torch.float16})}
    again = through_a_block(value)
    assert again["a"] == value["a"]
    assert isinstance(again["b"], tuple)
    assert torch.equal(again["b"][0], torch.ones(2))
    assert again["b"][1]["c"] is torch.float16


def test_what_is_neither_tensor_nor_plain_is_refused():
    with pytest.raises(TypeError, match="type set"):
        raw.Store().tree([{1, 2}])


def test_a_sealed_block_cannot_be_changed_by_who_reads_it():
    store = raw.Store()
    store.tree(torch.ones(4))
    descriptor = store.seal("test")
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(descriptor, mmap.PAGESIZE)
    os.close(descriptor)


@settings(max_examples=50)
@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 1000), max_size=4))
def test_swaps_are_permutations_that_both_sides_derive_alike(salt, sizes):
    places = raw.swap_places(salt, sizes)
    assert places == raw.swap_places(salt, sizes)
    for size, pairs in zip(sizes, places, strict=True):
        touched = [i for pair in pairs for i in pair]
        assert len(touched) == len(set(touched))
        assert all(0 <= i < size for i in touched)
        if size:
            line = torch.arange(size)
            raw.swap(line, pairs)
            assert sorted(line.tolist()) == list(range(size))
            assert all(int(line[a]) == b and int(line[b]) == a for a, b in pairs)


def test_equal_bytes_count_nan_as_equal_and_minus_zero_as_different():
    odd = torch.tensor([float("nan"), 0.0, 1.0, 2.0])
    assert raw.same_bytes(odd, odd.clone())
    assert not raw.same_bytes(odd, torch.tensor([float("nan"), -0.0, 1.0, 2.0]))
    assert not raw.same_bytes(odd, odd[:2])


def test_an_outline_tells_containers_and_arity_but_takes_list_and_tuple_for_the_same():
    one = torch.ones(1)
    assert raw.outline((one, one)) == raw.outline([one, one])
    assert raw.outline((one,)) != raw.outline(one)
    assert raw.outline({"a": one}) != raw.outline([one])
    assert raw.outline((one, 1)) != raw.outline((one, 2))
    assert raw.outline(object()) == "object"


@pytest.mark.parametrize("shape", [(7, 3), (2, 5), (1, 9), (12,), (1,), (), (0, 4)])
@pytest.mark.parametrize("cut", [0.25, 0.5, 0.75])
def test_a_refilled_tensor_is_a_copy_whose_rows_after_the_cut_are_the_donors(shape, cut):
    source, donor = torch.randn(shape), torch.randn(shape)
    wanted, found = source.clone(), torch.empty(shape)
    raw.splice(wanted, donor, cut)
    raw.refill(found, source, donor, cut, None)
    assert torch.equal(found, wanted)
    raw.refill(found, source, None, cut, None)
    assert torch.equal(found, source)


@pytest.mark.parametrize("shape", [(7, 30), (1, 9), (12,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_bits_that_are_turned_over_change_every_row_a_little_and_alike_everywhere(shape, dtype):
    source, donor = torch.rand(shape).to(dtype), torch.rand(shape).to(dtype)
    bits = raw.dither_bits(source)
    for other in (donor, None):
        wanted, found = source.clone(), torch.empty_like(source)
        if other is not None:
            raw.splice(wanted, other, 0.5)
        plain = wanted.clone()
        dither = raw.dither_at(bits, source, 1234)
        raw.dither_(wanted, dither)
        raw.refill(found, source, other, 0.5, dither)
        assert torch.equal(found, wanted)
        change = (found.double() - plain.double()).abs()
        most = 2.0 ** raw.DITHERED_BITS[dtype] * torch.finfo(dtype).eps
        assert 0 < change.max() <= most * plain.double().abs().max()
        raw.dither_(found, dither)
        assert torch.equal(found, plain)


def test_no_row_of_a_hundred_refills_comes_again():
    sets = [torch.rand(16, 64) for _ in range(4)]
    bits, target = raw.dither_bits(sets[0]), torch.empty(16, 64)
    seen = set()
    for number in range(100):
        dither = raw.dither_at(bits, target, raw.salted(977 * number, dithered=True))
        raw.refill(target, sets[number % 4], sets[(number + 1) % 4], 0.5, dither)
        seen |= {row.numpy().tobytes() for row in target}
    assert len(seen) > 1550  # places are drawn, and may be drawn twice


def test_a_salt_says_whether_bits_are_turned_over():
    assert sum(raw.is_dithered(n) for n in range(800)) == 500
    for number in range(100):
        assert raw.is_dithered(raw.salted(977 * number, dithered=True))
        assert not raw.is_dithered(raw.salted(977 * number, dithered=False))
        assert raw.salted(977 * number, dithered=False) // 8 == 977 * number // 8
