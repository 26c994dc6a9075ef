"""FLOPs, least bytes and operators of modules whose counts are known."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from kernelpro.problems.counts import Recorder


def count(forward, *inputs, module=None):
    held = [x for x in inputs if isinstance(x, torch.Tensor)]
    held += list(module.parameters()) if module else []
    recorder = Recorder()
    with torch.no_grad(), recorder.counting(held):
        result = forward(*inputs)
    outputs = [result] if isinstance(result, torch.Tensor) else list(result)
    return recorder.counts(outputs)


@pytest.fixture(params=["cpu", "meta"], autouse=True)
def device(request):
    with torch.device(request.param):
        yield request.param


def test_a_matmul_is_two_m_n_k():
    counts = count(torch.matmul, torch.rand(8, 16), torch.rand(16, 4))
    assert counts.flops == 2 * 8 * 16 * 4
    assert counts.min_bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert counts.operators == {"aten.mm": 1}


def test_a_linear_layer_reads_its_used_parameters_once():
    module = nn.Linear(16, 4)
    module.unused = nn.Parameter(torch.zeros(1000))
    counts = count(module, torch.rand(8, 16), module=module)
    assert counts.flops == 2 * 8 * 16 * 4
    assert counts.min_bytes == 4 * (8 * 16 + 16 * 4 + 4 + 8 * 4)


def test_a_chain_counts_each_operation_and_no_intermediate_bytes():
    counts = count(lambda x, y: torch.relu(x * 2 + y), torch.rand(10, 10), torch.rand(10, 10))
    assert counts.flops == 3 * 100
    assert counts.min_bytes == 3 * 400
    assert counts.operators == {"aten.mul": 1, "aten.add": 1, "aten.relu": 1}


def test_reductions_and_normalisations_count_by_input_element():
    x = torch.rand(6, 10)
    assert count(lambda x: x.sum(dim=1), x).flops == 60
    assert count(lambda x: x.amax(dim=1), x).flops == 60
    assert count(lambda x: torch.softmax(x, -1), x).flops == 5 * 60
    assert count(lambda x: F.layer_norm(x, (10,)), x).flops == 6 * 60
    weight = torch.ones(10)
    assert count(lambda x, w: F.layer_norm(x, (10,), w, w), x, weight).flops == 8 * 60


def test_in_place_operators_count_like_the_others():
    counts = count(lambda x: x.clone().add_(1).mul_(2), torch.rand(5, 5))
    assert counts.flops == 50


def test_an_input_that_is_passed_twice_or_not_read_is_not_read_twice_or_at_all():
    x = torch.rand(10, 10)
    assert count(lambda a, b: a + b, x, x).min_bytes == 2 * 400
    assert count(lambda a, b: a + 1, x, torch.rand(10, 10)).min_bytes == 2 * 400


def test_views_count_only_what_is_read_of_them():
    x = torch.rand(10, 8)
    assert count(lambda x: x[:, :2] * 2, x).min_bytes == 2 * 80
    assert count(lambda x: torch.add(*x.chunk(2, dim=1)), x).min_bytes == 320 + 160
    assert count(lambda x: x + x.flip(0).t().t(), x).min_bytes == 2 * 320


def test_an_expanded_input_is_read_once():
    x = torch.rand(1, 8).expand(100, 8)
    assert count(lambda x: x * 2, x).min_bytes == 32 + 3200


def test_a_table_counts_only_the_rows_that_are_looked_up():
    table, index = torch.rand(1000, 16), torch.zeros(5, dtype=torch.int64)
    counts = count(lambda i, t: F.embedding(i, t), index, table)
    assert counts.min_bytes == 5 * 8 + 2 * 5 * 16 * 4
    assert counts.flops == 0


def test_an_output_that_is_a_view_of_an_input_is_not_written():
    assert count(lambda x: x.t(), torch.rand(10, 10)).min_bytes == 0


def test_an_operator_without_a_rule_is_named_and_not_counted():
    counts = count(lambda x: torch.special.i0e(x) + 1, torch.rand(10))
    assert counts.flops == 10
    assert counts.note.endswith("not counted, for want of a rule: special_i0e")


def test_integer_arithmetic_is_not_counted_as_floating_point():
    assert count(lambda x: x + 1, torch.ones(10, dtype=torch.int64)).flops == 0


def test_attention_counts_two_products_of_queries_and_keys():
    q = torch.rand(2, 4, 64, 32)
    counts = count(F.scaled_dot_product_attention, q, torch.rand_like(q), torch.rand_like(q))
    products = 2 * 2 * (2 * 4 * 64 * 64 * 32)
    assert products <= counts.flops <= 1.05 * products
    assert "not counted" not in counts.note


def test_a_convolution_is_counted_by_torchs_rule():
    module = nn.Conv2d(3, 8, 3, padding=1)
    counts = count(module, torch.rand(2, 3, 16, 16), module=module)
    assert counts.flops == 2 * (2 * 8 * 16 * 16) * (3 * 3 * 3)


WEIGHT = (24, 16)


@pytest.mark.parametrize(
    ("forward", "flops"),
    [
        # Rows of the product are summed: the weight is, and then one product a row.
        (lambda x, w: (x @ w.T).sum(1), 24 * 16 + 2 * 8 * 16),
        (lambda x, w: ((x @ w.T) / 2).sum(1, keepdim=True) * 3, 24 * 16 + 2 * 8 * 16 + 8),
        (lambda x, w: F.linear(x, w, w[:, 0]).mean(-1), 24 * 16 + 2 * 8 * 16),
        # Its columns, or both.
        (lambda x, w: (x @ w.T).mean(0), 8 * 16 + 2 * 24 * 16),
        (lambda x, w: F.linear(x.view(2, 4, 16), w).sum(1), 8 * 16 + 2 * 2 * 24 * 16),
        (lambda x, w: (x @ w.T).sum(), 8 * 16 + 24 * 16 + 2 * 16),
    ],
)
def test_a_product_of_which_only_sums_are_used_counts_as_a_product_of_sums(forward, flops):
    counts = count(forward, torch.rand(8, 16), torch.rand(*WEIGHT))
    assert counts.flops == flops
    assert "only sums are used" in counts.note


@pytest.mark.parametrize(
    "forward",
    [
        lambda x, w: (x @ w.T).relu().sum(1),
        lambda x, w: ((x @ w.T) * w[:, 0]).sum(1),
        lambda x, w: (x @ w.T).view(8, 4, 6).sum(1),
        lambda x, w: (x @ w.T).T.contiguous().sum(1),
        lambda x, w: (lambda y: (y.sum(1), y))(x @ w.T),
        lambda x, w: (lambda y: (y.sum(1), y.amax(1)))(x @ w.T),
        lambda x, w: (lambda y: (y * y).sum(1))(x @ w.T),
    ],
)
def test_a_product_that_is_used_otherwise_counts_whole(forward):
    counts = count(forward, torch.rand(8, 16), torch.rand(*WEIGHT))
    assert counts.flops >= 2 * 8 * 16 * 24
    assert "only sums are used" not in counts.note


def test_a_product_with_a_diagonal_matrix_counts_each_element_once():
    assert count(lambda a, b: torch.diag(a) @ b, torch.rand(8), torch.rand(8, 4)).flops == 32
    assert count(lambda a, b: b @ torch.diag(a), torch.rand(4), torch.rand(8, 4)).flops == 32
