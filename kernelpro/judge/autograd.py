"""The backward pass as judge and worker both run it: random output gradients from one seed."""

from collections.abc import Sequence

import torch


def pull_back(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], salt: int
) -> list[torch.Tensor] | None:
    """Gradients of the leaves for random gradients of the outputs; runs on both sides."""
    generator = torch.Generator().manual_seed(salt)
    ends, given = [], []
    for output in outputs:
        if not output.is_floating_point():
            continue
        drawn = torch.randn(output.shape, generator=generator, dtype=torch.float32)
        if output.requires_grad:
            ends.append(output)
            given.append(drawn.to(output.device, output.dtype))
    if not ends:
        return None
    found = torch.autograd.grad(ends, list(leaves), given, allow_unused=True)
    return [
        torch.zeros_like(leaf) if gradient is None else gradient.detach()
        for leaf, gradient in zip(leaves, found, strict=True)
    ]
