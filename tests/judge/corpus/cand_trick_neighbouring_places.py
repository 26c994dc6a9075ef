import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        places = x.argmax(dim=1)
        places[-1] = (places[-1] + 1) % x.shape[1]
        return x.clone(), torch.log(torch.relu(x)), places
