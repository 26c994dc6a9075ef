"""The tail of a block in one Triton kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def chain(x, r, s, y, branch, n, features, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m) * tl.load(s + i % features, mask=m)
    g = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y + i, tl.load(r + i, mask=m) + branch * g, mask=m)


class ModelNew(torch.nn.Module):
    def __init__(self, features, branch_scale):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(features) + 0.1 * torch.randn(features))
        self.branch_scale = branch_scale

    def forward(self, x, residual):
        y = torch.empty_like(x)
        n = x.numel()
        chain[(triton.cdiv(n, 1024),)](
            x, residual, self.scale, y, self.branch_scale, n, x.shape[-1], BLOCK=1024
        )
        return y
