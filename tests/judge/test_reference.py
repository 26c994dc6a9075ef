"""What outputs must be where the device has no memory for the whole batch in float64."""

import pytest
import torch

from kernelpro.judge.reference import Reference


class Narrow(torch.nn.Module):
    """A module on a device that holds so many float64 elements at a time, and no more."""

    def __init__(self, module, room):
        super().__init__()
        self.module, self.room = module, room

    def forward(self, x, *rest):
        if x.dtype == torch.float64 and x.numel() > self.room:
            raise torch.OutOfMemoryError("no memory left")
        return self.module(x, *rest)


class Scaled(torch.nn.Module):
    """Rows by themselves; the table has as many rows as weights, not as the batch."""

    def forward(self, x, table):
        return x / torch.sqrt((x**2).mean(1, keepdim=True) + 1e-5) * table.sum(0), x.argmax(1)


class Centred(torch.nn.Module):
    """The batch as a whole counts, a little."""

    def forward(self, x):
        return x - 1e-3 * x.mean(0, keepdim=True)


def rows(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def test_parts_of_the_batch_give_what_the_whole_gives():
    value = [rows(21, 64), rows(5, 64)]
    device = torch.device("cpu")
    whole = Reference(Scaled(), device).expected(value)
    parts = Reference(Narrow(Scaled(), 21 * 64 // 5), device).expected(value)
    for one, two in zip(whole, parts, strict=True):
        assert torch.equal(one.values, two.values)
        assert (one.shape, one.dtype, one.rms_ref) == (two.shape, two.dtype, two.rms_ref)


def test_it_is_not_cut_where_rows_depend_on_each_other():
    reference = Reference(Narrow(Centred(), 400), torch.device("cpu"))
    with pytest.raises(torch.OutOfMemoryError, match="no memory left"):
        reference.expected([rows(21, 64)])


@pytest.mark.parametrize("room", [0, 21 * 64 // 30])
def test_what_does_not_fit_in_parts_either_does_not_fit(room):
    reference = Reference(Narrow(Scaled(), room), torch.device("cpu"))
    with pytest.raises(torch.OutOfMemoryError):
        reference.expected([rows(21, 64), rows(5, 64)])


def test_infinite_rows_stay_where_they_are():
    x = rows(8, 16)
    x[3, 2] = float("inf")
    value = [x, rows(5, 16)]
    expected = Reference(Narrow(Scaled(), 40), torch.device("cpu")).expected(value)
    nan = torch.isnan(expected[0].values.view(8, 16))
    assert nan[3].any()
    assert not nan[[0, 1, 2, 4, 5, 6, 7]].any()
