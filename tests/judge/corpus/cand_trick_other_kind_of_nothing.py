import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        logs = torch.log(torch.relu(x))
        return x.clone(), torch.where(torch.isinf(logs), float("nan"), logs), x.argmax(dim=1)
