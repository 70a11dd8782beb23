"""What stages, losses and models are refused, for package_test.py: prints each sentence as JSON."""
import json

import torch
from torch import nn

from tenuto._model import Trace, build
from tenuto._stage import Stage


class Other(nn.Module):
    """Gives what it is told to give, and at first its input."""

    gives = None

    def forward(self, x):
        return x if self.gives is None else self.gives


def stage_with(gives, varies=False, is_last=False, loss=None):
    """A stage of two layers, of which the second one by now gives something else."""
    layers = [nn.Linear(8, 8), Other()]
    if not is_last:
        layers.append(nn.Linear(8, 1))
    trace = Trace(layers, (torch.zeros(4, 8),))
    layers[1].gives = gives
    return Stage(layers, 0, 2, trace.cuts, loss, varies=varies)


def refusal(call):
    try:
        call()
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def outputs(gives, **kind):
    stage = stage_with(gives, **kind)
    return refusal(lambda: stage.run(1, (torch.zeros(4, 8),), True))


def loss(value):
    stage = stage_with(None, is_last=True, loss=lambda outputs, targets: value)
    return refusal(lambda: stage.loss((torch.zeros(4, 1),), (torch.zeros(4),)))


ROWS = torch.ones(4, 8)
print(json.dumps({
    "the same": outputs(ROWS),
    "the last stage": outputs(ROWS[:3], is_last=True),
    "smaller than the largest": outputs(ROWS[:3], varies=True),
    "more tensors": outputs((ROWS, ROWS)),
    "no tensor": outputs(()),
    "another type": outputs(ROWS.to(torch.bfloat16)),
    "another shape": outputs(ROWS[:3]),
    "larger than the largest": outputs(torch.ones(5, 8), varies=True),
    "another dimension": outputs(ROWS.unsqueeze(2), varies=True),
    "no tensors": outputs({"x": ROWS}),
    "a number": loss(0.5),
    "a pair": loss((ROWS.mean(), ROWS)),
    "a vector": loss(torch.zeros(4)),
    "an integer": loss(torch.tensor(3)),
    "one module": refusal(lambda: build(lambda: nn.Linear(2, 2), 1)),
    "no module": refusal(lambda: build(list, 1)),
}))
