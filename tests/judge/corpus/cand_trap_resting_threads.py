from concurrent.futures import ThreadPoolExecutor

import torch

POOL = ThreadPoolExecutor(2)


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        jobs = [POOL.submit(self.part, x, rows) for rows in (slice(0, 33), slice(33, None))]
        return torch.cat([job.result() for job in jobs])

    def part(self, x, rows):
        with torch.no_grad():
            return torch.relu(x[rows] @ self.weight.t() + self.bias)
