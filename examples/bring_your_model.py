"""A model of one's own, convolutions and attention, trained on 2 stages x 2 replicas.

tenuto launch -n 4 examples/bring_your_model.py

--write FILE writes the loss of each step that this worker knows, as JSON lines.
"""

import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn

import tenuto

SIZE, CHANNELS, CLASSES = 16, 16, 4


class Convolution(nn.Module):
    """[rows, inputs, size, size] to [rows, outputs, size / 2, size / 2]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = nn.GroupNorm(4, outputs)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(F.gelu(self.norm(self.convolution(images))), 2)


class Attention(nn.Module):
    """Lets the places of an image attend to each other: [rows, channels, height, width]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.attention = nn.MultiheadAttention(channels, 2, batch_first=True)
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        places = images.flatten(2).transpose(1, 2)
        normed = self.norm(places)
        mixed, _ = self.attention(normed, normed, normed, need_weights=False)
        return (places + self.scale * mixed).transpose(1, 2).reshape(images.shape)


def model() -> list[nn.Module]:
    """Return the layers: the model can be cut between any two of them."""
    return [
        Convolution(1, CHANNELS),
        Attention(CHANNELS),
        Convolution(CHANNELS, CHANNELS),
        Attention(CHANNELS),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES)),
    ]


def batch(seed: int, iteration: int, micro: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return stripes of one of four directions, with noise, and which direction it is."""
    generator = torch.Generator().manual_seed((seed * 1009 + iteration) * 1009 + micro)
    classes = torch.randint(CLASSES, (8,), generator=generator)
    angles = classes[:, None, None] * (torch.pi / CLASSES)
    across, down = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="xy")
    phase = across * torch.cos(angles) + down * torch.sin(angles)
    noise = torch.randn((8, SIZE, SIZE), generator=generator)
    return (torch.sin(phase) + 0.5 * noise)[:, None], classes


CONFIG = {
    "job": {"name": "bring-your-model", "steps": 20},
    "optimizer": {"learning_rate": 0.003, "warm_up_steps": 5},
    "parallel": {"stages": 2, "pipelines": 2, "micros": 2, "micro_rows": 8},
}


def main() -> None:
    """Train the model, or take one worker's part in it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", help="file for the losses")
    options = parser.parse_args()

    def tell(step: int, loss: float) -> None:
        if options.write:
            with open(options.write, "a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, "loss": loss}) + "\n")

    with tenuto.Pipeline(model, loss=F.cross_entropy, config=CONFIG, callbacks=[tell]) as pipeline:
        pipeline.fit(batch)


if __name__ == "__main__":
    main()
