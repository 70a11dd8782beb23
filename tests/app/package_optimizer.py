"""Optimizers of PyTorch for optimizer_test.py, chosen by the first argument.

NAME JOB              trains the model by tenuto
NAME JOB gpt          trains the GPT of package_model.py, on the files of the job
NAME JOB evaluate RUN evaluates a run by a pipeline that has no optimizer; prints the loss
NAME JOB plain STEPS  trains it by plain PyTorch; prints the losses and the parameters as JSON
"""
import functools
import json
import sys

import torch
import torch.nn.functional as F
from package_model import gpt, numbers, text_loss
from torch import nn
from torch.optim import lr_scheduler

import tenuto

STEPS, MICROS = 6, 4


class Scaled(nn.Module):
    """Has a parameter without dimensions, and one that is not trained."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.shift = nn.Parameter(torch.full((8,), 0.1), requires_grad=False)

    def forward(self, x):
        return self.scale * torch.tanh(x) + self.shift


def model():
    return [nn.Linear(8, 8), Scaled(), nn.LayerNorm(8), nn.Linear(8, 1)]


def in_groups(parameters):
    """Matrices decay and move fast; all else does not decay."""
    every = list(parameters)
    return torch.optim.AdamW(
        [{"params": [one for one in every if one.dim() > 1]},
         {"params": [one for one in every if one.dim() < 2], "weight_decay": 0.0, "lr": 0.01}],
        lr=0.03, amsgrad=True)


def frozen_steps(optimizer):
    return lr_scheduler.LambdaLR(optimizer, [lambda step: 1 / (1 + step), lambda step: 1.0])


class Mine(torch.optim.Optimizer):
    """An optimizer of the script's own: steps by the sign of the mean gradient."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.001, "decay": 0.9})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                mean = state.get("mean", torch.zeros_like(parameter)) * group["decay"]
                state["mean"] = mean + parameter.grad
                state["count"] = state.get("count", 0) + 1
                parameter -= group["lr"] / state["count"] ** 0.5 * state["mean"].sign()


OPTIMIZERS = {
    "radam": (functools.partial(torch.optim.RAdam, lr=0.01, weight_decay=0.01),
              functools.partial(lr_scheduler.OneCycleLR, max_lr=0.05, total_steps=STEPS)),
    "groups": (in_groups, frozen_steps),
    "nadam": (torch.optim.NAdam, lambda steps: 0.01 / (1 + 0.1 * steps)),
    "mine": (Mine, None),
    "amsgrad": (functools.partial(torch.optim.Adam, lr=0.01, amsgrad=True), None),
    "sgd": (functools.partial(torch.optim.SGD, lr=0.01), None),
    "lbfgs": (torch.optim.LBFGS, None),
    "made": (torch.optim.Adam([nn.Parameter(torch.ones(2))]), None),
    "schedule": (None, lambda steps: 0.01),
}


def plain(name, steps):
    torch.manual_seed(1)
    whole = nn.Sequential(*model())
    make, schedule = OPTIMIZERS[name]
    optimizer = make(one for one in whole.parameters() if one.requires_grad)
    scheduler = None
    if schedule is not None and name != "nadam":
        scheduler = schedule(optimizer)
    losses = []
    for step in range(steps):
        if name == "nadam":
            optimizer.param_groups[0]["lr"] = schedule(step)
        optimizer.zero_grad()
        each = []
        for micro in range(MICROS):
            inputs, targets = numbers(1, step, micro)
            each.append(F.mse_loss(whole(inputs), targets))
        mean = torch.stack(each).mean()
        mean.backward()
        losses.append(mean.item())
        optimizer.step()
        if scheduler is not None and step + 1 < steps:
            scheduler.step()
    parameters = {key: value.flatten().tolist() for key, value in whole.state_dict().items()}
    print(json.dumps({"losses": losses, "parameters": parameters}))


if __name__ == "__main__":
    if sys.argv[3:4] == ["plain"]:
        plain(sys.argv[1], int(sys.argv[4]))
    elif sys.argv[3:4] == ["evaluate"]:
        ALONE = tenuto.Pipeline(model, loss=F.mse_loss, config=sys.argv[2])
        print("evaluated", ALONE.evaluate(numbers, sys.argv[4], micros=MICROS), file=sys.stderr)
    else:
        OPTIMIZER, SCHEDULE = OPTIMIZERS[sys.argv[1]]
        MODEL, LOSS, DATA = model, F.mse_loss, numbers
        if sys.argv[3:] == ["gpt"]:
            MODEL, LOSS, DATA = gpt, text_loss, None
        tenuto.Pipeline(MODEL, loss=LOSS, optimizer=OPTIMIZER, schedule=SCHEDULE,
                        config=sys.argv[2]).fit(DATA)
