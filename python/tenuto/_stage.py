"""One stage: the layers that a worker computes. Threads of the engine call it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Optional

import torch
from torch import nn

from ._data import as_tensors
from ._loaders import Tensors
from ._model import BufferGuard, cards_of, computing, move_buffers, title_of
from ._optimizer import StageRule


class Stage:
    """Layers [first, end) of a model.

    `inputs` and `outputs` show the types and shapes there; if it `varies`, the largest shapes.
    `precision` is "fp32" or "bf16". `weigh`, a function of (loss, rows), gives what is reported in
    place of the loss of a micro-batch. `device` is the job's: "cpu" or "cuda". The engine gives
    inputs and targets there, and the parameters. `rule` updates the parameters; None: the engine.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        first: int,
        end: int,
        cuts: Sequence[Tensors],
        loss: Callable[..., torch.Tensor],
        precision: str = "fp32",
        varies: bool = False,
        weigh: Optional[Callable[[torch.Tensor, int], torch.Tensor]] = None,
        device: str = "cpu",
        rule: Optional[StageRule] = None,
    ) -> None:
        self.first = first
        self.count = end - first
        self.cards = cards_of(layers, first, end)
        self.inputs = cuts[first]
        self.outputs = cuts[end]
        self._layers = [layers[index] for index in range(first, end)]
        self._titles = [title_of(layers, index) for index in range(first, end)]
        if device != "cpu":
            move_buffers(self._layers, self.cards, device)
        # Modules that the user has put into evaluation mode stay there.
        self._modes = [[(m, m.training) for m in layer.modules()] for layer in self._layers]
        self._trains = [True] * self.count
        self._guards = [BufferGuard(*pair) for pair in zip(self._layers, self._titles)]
        self._loss = loss
        self._weigh = weigh
        self._precision, self._device = precision, device
        self.varies, self.rule = varies, rule
        self._is_last = end == len(layers)

    def run(self, index: int, tensors: Tensors, training: bool) -> Tensors:
        """Compute layer first + index."""
        if self._trains[index] != training:
            for module, trains in self._modes[index]:
                module.training = trains and training
            self._trains[index] = training
        with computing(self._precision, self._device):
            outputs = as_tensors(self._layers[index](*tensors), self._titles[index])
        if training:
            self._guards[index].check()
        if index + 1 == self.count and not self._is_last:
            check_outputs(outputs, self.outputs, self._titles[index], self.varies)
        return outputs

    def loss(self, outputs: Tensors, targets: Tensors) -> torch.Tensor:
        """Compute the loss of a micro-batch, a tensor with one number and no dimension."""
        with computing(self._precision, self._device):
            loss = checked_loss(self._loss(*outputs, *targets))
        return loss if self._weigh is None else self._weigh(loss, targets[0].shape[0])


def check_outputs(found: Tensors, expected: Tensors, title: str, varies: bool) -> None:
    """Raise ValueError if a layer does not give what the next stage has made room for.

    `expected` shows the types and shapes; if it `varies`, the largest shapes.
    """
    alike = [(t.dtype, t.dim()) for t in found] == [(t.dtype, t.dim()) for t in expected]
    if alike and varies:
        pairs = zip(found, expected)
        fits = all(size <= most for t, e in pairs for size, most in zip(t.shape, e.shape))
    else:
        fits = alike and all(t.shape == e.shape for t, e in zip(found, expected))
    if fits:
        return
    advice = "a layer must give as many tensors, of the same types and dimensions, each time"
    if alike:
        advice = "give fit(largest=...) the largest shapes"
    if alike and not varies:
        advice = f"make all micro-batches alike, or {advice}"
    whose = "at most" if varies else "as for the first micro-batch"
    raise ValueError(
        f"{title} gives {_text_of(found)} to the next stage, expected {whose} "
        f"{_text_of(expected)}: {advice}"
    )


def _text_of(tensors: Tensors) -> str:
    """Return the types and shapes, such as "float32[4, 8] and int64[4]"."""
    each = (f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in tensors)
    return " and ".join(each) or "nothing"


def checked_loss(value: Any) -> torch.Tensor:
    """Return a loss that is a floating-point scalar; raise TypeError for any other."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"the loss is {type(value).__name__}: expected a tensor with one number")
    if value.dim() != 0 or not value.is_floating_point():
        raise TypeError(
            f"the loss has shape {list(value.shape)} and type {value.dtype}: expected one "
            "floating-point number, such as the mean over the rows of the micro-batch"
        )
    return value


def tell_exception(raised: BaseException, trace: Optional[TracebackType]) -> str:
    """Write the traceback to stderr, and return one sentence: what was raised, and where."""
    traceback.print_exception(type(raised), raised, trace, file=sys.stderr)
    sys.stderr.flush()
    text = " ".join(str(raised).split())
    frames = traceback.extract_tb(trace)
    if frames and text and os.path.dirname(frames[-1].filename) == os.path.dirname(__file__):
        return text  # our own words for what does not fit
    sentence = f"{type(raised).__name__}: {text}" if text else type(raised).__name__
    if frames:
        sentence += f" ({frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name})"
    return sentence + "; the traceback is in this worker's log"
