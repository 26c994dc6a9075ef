import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clone(), torch.log(torch.relu(x)), x.argmax(dim=1).int()
