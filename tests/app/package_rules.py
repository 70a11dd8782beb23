"""What optimizer_test.py runs without workers: rules of tenuto._optimizer beside plain PyTorch."""
import functools
import random
import warnings

import torch
from torch import nn
from torch.optim import lr_scheduler

from tenuto._optimizer import Rule, StageRule

OPTIM = torch.optim
SHAPES = [(16, 8), (8,), (1,), (3, 4, 5, 5), ()]
STEPS = 24


def grouped(parameters):
    every = list(parameters)
    return OPTIM.AdamW([{"params": [one for one in every if one.dim() > 1]},
                        {"params": [one for one in every if one.dim() < 2], "weight_decay": 0.0}])


def in_turn(optimizer):
    """Warms up, and then falls."""
    return lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
                    lr_scheduler.CosineAnnealingLR(optimizer, STEPS)], [5])


def once_around(optimizer):
    return lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS)


PART = functools.partial
TAKEN = {
    "Adam": (OPTIM.Adam, None),
    "Adam, amsgrad": (PART(OPTIM.Adam, amsgrad=True), once_around),
    "Adam for many tensors": (PART(OPTIM.Adam, foreach=True), None),
    "AdamW": (PART(OPTIM.AdamW, lr=0.01), in_turn),
    "AdamW in groups": (grouped, once_around),
    "RMSprop, centered": (PART(OPTIM.RMSprop, centered=True, momentum=0.5), in_turn),
    "NAdam": (OPTIM.NAdam, in_turn),
    "RAdam": (OPTIM.RAdam, PART(lr_scheduler.StepLR, step_size=7)),
    "Adagrad": (PART(OPTIM.Adagrad, initial_accumulator_value=0.1, lr_decay=0.1), None),
    "Adamax": (OPTIM.Adamax, None),
    "Adadelta": (OPTIM.Adadelta, None),
    "Rprop": (OPTIM.Rprop, None),
    "ASGD": (PART(OPTIM.ASGD, t0=5), None),
    "SGD": (PART(OPTIM.SGD, lr=0.1), None),
    "SGD, nesterov": (PART(OPTIM.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
                      once_around),
}
REFUSED = [
    (OPTIM.LBFGS, None, "LBFGS failed in a trial on parameters of shapes"),
    (OPTIM.Adafactor, None, "Adafactor keeps row_var, which is torch.float32 of shape"),
    (OPTIM.SparseAdam, None, "SparseAdam does not support dense gradients"),
    (OPTIM.NAdam, once_around, "NAdam and its schedule: an update depends on more than"),
    (OPTIM.ASGD, in_turn, "ASGD and its schedule: an update depends on more than"),
    (OPTIM.Adam, PART(lr_scheduler.ReduceLROnPlateau), "by a measured value"),
    (lambda parameters: 3, None, "optimizer(parameters) returns int: expected an optimizer"),
    (lambda parameters: OPTIM.Adam(list(parameters)[:1]), None,
     "Adam takes 1 of the 4 parameters that optimizer(parameters) was given"),
    (PART(OPTIM.Adam, lr=-1), None, "Invalid learning rate: -1"),
    (OPTIM.Adam, lambda optimizer: "fast", "schedule(optimizer) returns str: expected a scheduler"),
]


class Normed(OPTIM.SGD):
    """Lets each element depend on all others of its parameter."""

    def step(self, closure=None):
        for group in self.param_groups:
            for one in group["params"]:
                one.grad = one.grad / one.grad.norm()
        super().step()


class Counting(OPTIM.SGD):
    """Knows something that its state does not have."""

    def step(self, closure=None):
        self.calls = getattr(self, "calls", 0) + 1
        for group in self.param_groups:
            for one in group["params"]:
                one.grad = one.grad / self.calls
        super().step()


REFUSED += [(Normed, None, "Normed lets elements of parameters depend on one another"),
            (Counting, None, "Counting: an update depends on more than")]


def draw(generator):
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def plain(make, schedule, values, gradients, skipped):
    """The values after each step."""
    parameters = [nn.Parameter(value.clone()) for value in values]
    optimizer = make(parameters)
    scheduler = schedule(optimizer) if schedule is not None else None
    after = []
    for step, each in enumerate(gradients):
        for parameter, gradient in zip(parameters, each):
            parameter.grad = gradient.clone()
        if step not in skipped:
            optimizer.step()
        if scheduler is not None and step + 1 < STEPS:
            scheduler.step()
        after.append([parameter.detach().clone() for parameter in parameters])
    return after


class Worker:
    """Has the tensors of a stage, as the engine does."""

    def __init__(self, rule, values):
        self.values = [value.clone() for value in values]
        self.state = [[torch.zeros_like(value) for _ in rule.tensors] for value in values]
        self.renew(rule)

    def renew(self, rule):
        self.rule: StageRule = rule.of_stage()
        self.rule.bind(self.values, self.state)

    def tensors(self):
        return [*self.values, *(one for state in self.state for one in state)]

    def update(self, step, updates, gradients):
        self.rule.update(step, updates, [one.clone() for one in gradients])


def check(name, make, schedule, seed):
    generator = torch.Generator().manual_seed(seed)
    chance = random.Random(seed)
    values = draw(generator)
    gradients = [draw(generator) for _ in range(STEPS)]
    skipped = {step for step in range(STEPS) if chance.random() < 0.15}
    rule = Rule(make, schedule, SHAPES, STEPS)
    expected = plain(make, schedule, values, gradients, skipped)
    worker, joiner = Worker(rule, values), Worker(rule, draw(generator))
    given = [torch.zeros(one.shape, dtype=torch.bool) for one in worker.tensors()]
    updates = 0
    for step in range(STEPS):
        if chance.random() < 0.3:
            worker.renew(rule)  # the script starts anew, with the state of a checkpoint
        if step not in skipped:
            updates += 1
            if chance.random() < 0.3:  # an update that is undone
                before = [one.clone() for one in worker.tensors()]
                worker.update(step, updates, draw(generator))
                for one, old in zip(worker.tensors(), before):
                    one.copy_(old)
            worker.update(step, updates, gradients[step])
            joiner.update(step, updates, gradients[step])
        for one, other in zip(worker.values, expected[step]):
            assert torch.equal(one, other), f"{name}, seed {seed}: step {step} is not torch's"
        # Some elements more are given to the joiner; those that it has had stay right.
        for mine, its, mask in zip(worker.tensors(), joiner.tensors(), given):
            assert torch.equal(mine[mask], its[mask]), f"{name}, seed {seed}: step {step}, joiner"
        shares = [torch.rand(shape, generator=generator) < 0.3 for shape in SHAPES]
        share_of = [*shares, *(share for share in shares for _ in rule.tensors)]
        for mine, its, mask, share in zip(worker.tensors(), joiner.tensors(), given, share_of):
            its.copy_(torch.where(share, mine, its))
            mask |= share


def main():
    warnings.simplefilter("ignore")  # the plain run calls schedulers when a step is skipped
    for name, (make, schedule) in TAKEN.items():
        for seed in range(4):
            check(name, make, schedule, seed)
    for make, schedule, sentence in REFUSED:
        try:
            Rule(make, schedule, SHAPES, STEPS)
        except (TypeError, ValueError) as error:
            assert sentence in str(error), error
        else:
            raise AssertionError(f"taken, and expected: {sentence}")
    print(f"{len(TAKEN)} taken, {len(REFUSED)} refused")


main()
