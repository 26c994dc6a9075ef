import torch


class ModelNew(torch.nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(words, width))

    def forward(self, index):
        return torch.index_select(self.table, 0, index)
