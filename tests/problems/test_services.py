"""The workload problems load for both targets, run on the CPU, and are what they say."""

import math

import pytest
import torch

from kernelpro import problems
from kernelpro.problems.module import instantiate

NAMES = problems.services()
SMALL = {
    "attention_decode": {"batch": 1, "heads": 4, "shared_heads": 2, "tokens": 7, "features": 8},
    "maxsim": {"queries": 2, "query_tokens": 3, "documents": 5, "document_tokens": 4},
    "moe_grouped_gemm": {"tokens": 41, "experts": 4, "in_features": 24, "out_features": 8},
    "moe_weight_gradient": {"tokens": 41, "experts": 4, "in_features": 24, "out_features": 8},
    "rms_norm_rope": {"batch": 2, "tokens": 5, "heads": 3, "features": 8},
    "sparse_scores": {"queries": 2, "vocabulary": 50, "documents": 6, "terms": 4},
}


def test_they_are_no_part_of_the_bundled_suite():
    assert sorted(SMALL) == NAMES
    assert not set(NAMES) & set(problems.bundled())


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_for_both_targets_without_its_data(name):
    small, large = problems.load(name), problems.load(name, target="cuda")
    assert small.origin == "bundled"
    assert "not counted" not in small.flops_note
    assert large.flops > small.flops > 0
    assert [s.dtype for s in large.outputs] == [s.dtype for s in small.outputs]
    specs = large.inputs + large.outputs
    size = sum(math.prod(s.shape) * getattr(torch, s.dtype).itemsize for s in specs)
    assert 40e6 < size < 700e6
    assert small.source.startswith('"""')


@pytest.mark.parametrize("name", NAMES)
def test_it_computes_what_its_name_says(name):
    module = instantiate(problems.load(name, sizes=SMALL[name]))
    model, inputs = module.model(3), module.inputs(3)
    (found,) = module.call(model, inputs)
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    wanted = globals()[f"_{name}"](model, *wide)
    limit = 0.02 if found.dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found.double(), wanted, rtol=limit, atol=limit * 4)


def _attention_decode(model, q, k, v):
    each = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)
    return torch.nn.functional.scaled_dot_product_attention(q.unsqueeze(2), k, v).squeeze(2)


def _maxsim(model, queries, documents):
    return torch.einsum("qtd,nsd->qnts", queries, documents).amax(-1).sum(-1)


def _experts(sizes):
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))


def _moe_grouped_gemm(model, x):
    assert sum(model.sizes) == len(x)
    assert len(set(model.sizes)) > 1  # ragged
    return torch.einsum("ti,toi->to", x, model.weight.double()[_experts(model.sizes)])


def _moe_weight_gradient(model, x, gradient):
    found = torch.zeros(len(model.sizes), gradient.shape[1], x.shape[1], dtype=x.dtype)
    return found.index_add(0, _experts(model.sizes), torch.einsum("to,ti->toi", gradient, x))


def _rms_norm_rope(model, x, cos, sin):
    x = x / (x.square().mean(-1, keepdim=True) + model.eps).sqrt() * model.weight.double()
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half], x[..., half:])
    turns = torch.complex(cos, sin)[:, None, :half]
    turned = pairs * turns
    return torch.cat((turned.real, turned.imag), -1)


def _sparse_scores(model, queries, terms, weights):
    dense = torch.zeros(len(terms), queries.shape[1], dtype=weights.dtype)
    return queries @ dense.scatter_add(1, terms, weights).t()
