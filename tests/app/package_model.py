"""Scripts of package_test.py, chosen by the first argument; the second one is a job file."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

import tenuto

WIDTH, HEADS, BLOCKS, SEQUENCE = 32, 4, 4, 16
SEED = 1


def begin(module, names, residual=()):
    """Gives the matrices of a module the values with which Tenuto's own GPT begins."""
    for own, name in names.items():
        parameter = module.get_parameter(own)
        deviation = 0.02 / (2.0 * BLOCKS) ** 0.5 if own in residual else 0.02
        with torch.no_grad():
            parameter.copy_(tenuto.initial_values(name, parameter.shape, deviation, SEED))


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(256, WIDTH))
        self.position = nn.Parameter(torch.empty(SEQUENCE, WIDTH))
        begin(self, {"weight": "embedding.weight", "position": "position.weight"})

    def forward(self, text):
        return F.embedding(text, self.weight) + self.position[: text.shape[1]]


class Block(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.feed_norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        for linear in (self.qkv, self.projection, self.up, self.down):
            nn.init.zeros_(linear.bias)
        prefix = f"block.{number}."
        begin(self, {"qkv.weight": prefix + "attention.qkv.weight",
                     "projection.weight": prefix + "attention.projection.weight",
                     "up.weight": prefix + "feed.up.weight",
                     "down.weight": prefix + "feed.down.weight"},
              residual=("projection.weight", "down.weight"))

    def forward(self, x):
        rows, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x))
        q, k, v = qkv.view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.feed_norm(x))))


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.weight = nn.Parameter(torch.empty(256, WIDTH))
        begin(self, {"weight": "head.weight"})

    def forward(self, x):
        return F.linear(self.norm(x), self.weight)


def gpt():
    return [Embedding(), *(Block(number) for number in range(BLOCKS)), Head()]


def text_loss(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


class Fails(nn.Linear):
    """Raises in the second training step."""

    def forward(self, x):
        self.passes = getattr(self, "passes", 0) + (1 if torch.is_grad_enabled() else 0)
        if self.passes > 4:
            raise KeyError("no such feature")
        return super().forward(x)


class Differs(nn.Linear):
    """Begins with other values in each process."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        with torch.no_grad():
            self.weight.fill_(os.getpid())


def numbers(seed, iteration, micro):
    generator = torch.Generator().manual_seed(seed + 1000 * iteration + micro)
    inputs = torch.randn((4, 8), generator=generator)
    return inputs, inputs.sum(1, keepdim=True)


def lines(seed, iteration, micro):
    """Rows of other lengths in each micro-batch, 3 to 6."""
    generator = torch.Generator().manual_seed(seed + 1000 * iteration + micro)
    inputs = torch.randn((4, 3 + (iteration + micro) % 4, 8), generator=generator)
    return inputs, inputs.sum((1, 2))


class MeanOfLine(nn.Module):
    def forward(self, x):
        return x.mean((1, 2))


class Rows:
    """A map-style data set."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        if not 0 <= index < 24:
            raise IndexError(index)
        x = torch.full((8,), float(index) / 24)
        return x, x.sum().reshape(1)


class Tied(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return F.linear(x, self.weight)


def tied():
    weight = nn.Parameter(torch.eye(8))
    return [Tied(weight), nn.Tanh(), Tied(weight), nn.Linear(8, 1)]


def ends():
    weight = nn.Parameter(torch.eye(8))
    return [Tied(weight), nn.Tanh(), nn.Linear(8, 8), Tied(weight)]


def sum_loss(outputs, targets):
    return F.mse_loss(outputs.sum(1, keepdim=True), targets)


def plain(*modules):
    return lambda: [make() for make in modules]


def wide():
    return nn.Linear(8, 8)


def narrow():
    return nn.Linear(8, 1)


MODELS = {
    "linear": (plain(wide, nn.ReLU, nn.Dropout, narrow), F.mse_loss, numbers),
    "lines": (plain(wide, nn.ReLU, wide, MeanOfLine), F.mse_loss, lines),
    "rows": (plain(wide, nn.ReLU, wide, narrow), F.mse_loss, Rows()),
    "fails": (plain(wide, nn.ReLU, lambda: Fails(8, 8), narrow), F.mse_loss, numbers),
    "differs": (plain(wide, lambda: Differs(8, 8), narrow), F.mse_loss, numbers),
    "buffers": (plain(wide, lambda: nn.BatchNorm1d(8), narrow), F.mse_loss, numbers),
    "loss": (plain(wide, narrow), lambda out, target: out - target, numbers),
    "tied": (tied, F.mse_loss, numbers),
    "ends": (ends, sum_loss, numbers),
    "gpt": (gpt, text_loss, None),
}

if __name__ == "__main__":
    MODEL, LOSS, DATA = MODELS[sys.argv[1]]
    LARGEST = lines(0, 0, 3) if sys.argv[3:] == ["largest"] else None
    PIPELINE = tenuto.Pipeline(MODEL, loss=LOSS, config=sys.argv[2])
    if len(sys.argv) == 3 or not sys.argv[3].isdigit():
        RESUME = {"resume": True, "begin": False}.get("".join(sys.argv[3:]))
        PIPELINE.fit(DATA, largest=LARGEST, resume=RESUME)
    else:  # the third argument is the step after which the loop is left
        for STEP in PIPELINE.steps(DATA):
            print(f"norm {STEP.gradient_norm} rate {STEP.learning_rate}", file=sys.stderr)
            if STEP.number >= int(sys.argv[3]):
                break
