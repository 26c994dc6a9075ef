import torch


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        out = torch.addmm(bias, x, weight.t()).relu_()
        ctx.save_for_backward(x, weight, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, out = ctx.saved_tensors
        grad = grad * (out > 0)
        return grad @ weight, grad.t() @ x, grad.sum(0)


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return Fused.apply(x, self.weight, self.bias)
