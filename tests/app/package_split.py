"""Models of split_test.py, chosen by the first argument; the second one is a job file.

Each is trained twice, with a fused and with a split backward, and must have the same bits.
"""
import sys

import torch
import torch.nn.functional as F
from package_model import WIDTH, Block, text_loss
from torch import nn
from torch.utils.checkpoint import checkpoint

import tenuto

ROWS, LENGTH, WORDS = 4, 16, 48


def text(seed, iteration, micro):
    generator = torch.Generator().manual_seed(seed + 1000 * iteration + micro)
    words = torch.randint(WORDS, (ROWS, LENGTH + 1), generator=generator)
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


class Across(nn.Module):
    """A convolution over places and channels."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        return self.norm(x + self.convolution(x[:, None]).mean(1))


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.1, batch_first=True)

    def forward(self, x):
        return x + self.attention(x, x, x, need_weights=False)[0]


class Drops(Block):
    """A GPT block whose attention drops out."""

    def forward(self, x):
        rows, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(rows, length, 3, 4, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        x = x + self.projection(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + F.dropout(self.down(F.gelu(self.up(self.feed_norm(x)))), 0.1)


class Again(nn.Module):
    """Runs a module's forward again in its backward."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return checkpoint(self.module, x, use_reentrant=False)


class Twice(nn.Module):
    """Uses one weight twice, once turned around."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + F.linear(torch.tanh(self.linear(x)), self.linear.weight.t())


class Head(nn.Module):
    """Has the weight of the embedding."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return F.linear(x, self.weight)


def between(*modules):
    embedding = nn.Embedding(WORDS, WIDTH)
    nn.init.normal_(embedding.weight, std=0.1)
    return [embedding, *modules, Head(embedding.weight)]


def layers():
    return between(Across(), Attends(), Drops(0), Again(Drops(1)), Twice(), Again(Attends()))


def compiled():
    return between(torch.compile(Block(0)), Block(1), torch.compile(Twice()))


def of_transformers(kind):
    import huggingface_check
    return tenuto.huggingface.from_config(huggingface_check.CONFIGS[kind])


def main():
    kind = sys.argv[1]
    model, loss = {"layers": layers, "compiled": compiled}.get(kind), text_loss
    if model is None:
        model, loss = of_transformers(kind), tenuto.huggingface.causal_loss
    tenuto.Pipeline(model, loss=loss, config=sys.argv[2]).fit(text)


main()
