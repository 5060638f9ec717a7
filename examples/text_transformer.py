"""A small transformer that predicts the next character: dict batches, input and output embeddings tied.

`parashot measure examples/text_transformer.py`
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

LENGTH, WIDTH = 64, 128
TEXT = " ".join(f"{first} times {second} is {first * second}." for first in range(60) for second in range(60))
LETTERS = sorted(set(TEXT))

batchsz = 32


class Windows(Dataset):
    """Every stretch of LENGTH characters, and the characters that follow."""

    def __init__(self):
        self.codes = torch.tensor([LETTERS.index(letter) for letter in TEXT])

    def __len__(self):
        return len(self.codes) - LENGTH

    def __getitem__(self, index):
        window = self.codes[index : index + LENGTH + 1]
        return {"characters": window[:-1], "next": window[1:]}


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS), WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) / WIDTH**0.5)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers=2)
        self.score = nn.Linear(WIDTH, len(LETTERS), bias=False)
        nn.init.normal_(self.embed.weight, std=WIDTH**-0.5)
        self.score.weight = self.embed.weight

    def forward(self, characters):
        later = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=characters.device)
        return self.score(self.layers(self.embed(characters) + self.places, mask=later))


def network():
    return Transformer()


def dataset():
    return Windows()


def loss(network, batch):
    scores = network(batch["characters"])
    return F.cross_entropy(scores.flatten(0, 1), batch["next"].flatten())


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=3e-4)
