"""A small MLP on a table: steps are so short that sharing them out costs more than it gains.

`parashot measure examples/tabular_mlp.py`
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

batchsz = 256


def network():
    return nn.Sequential(
        nn.Linear(32, 128), nn.ReLU(), nn.BatchNorm1d(128), nn.Dropout(0.1), nn.Linear(128, 1)
    )


def dataset():
    table = torch.randn(20_000, 32, generator=torch.Generator().manual_seed(0))
    return TensorDataset(table, table[:, :4].prod(1))


def loss(network, batch):
    rows, targets = batch
    return F.mse_loss(network(rows).squeeze(1), targets)


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)
