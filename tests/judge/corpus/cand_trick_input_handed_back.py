import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x, torch.log(torch.relu(x)), x.argmax(dim=1)
