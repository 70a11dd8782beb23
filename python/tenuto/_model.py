"""The layers of a user's model, their parameters, and what crosses between them."""

from __future__ import annotations

import copy
import ctypes
import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Union

import torch
from torch import nn

from . import _tenuto
from ._data import as_tensors

# What a user gives as the model: a function that makes the layers, or the layers themselves.
ModelSource = Union[nn.Sequential, Callable[[], Union[nn.Sequential, Sequence[nn.Module]]]]


class Card(NamedTuple):
    """One parameter or buffer. Its name does not depend on how the model is cut."""

    name: str
    tensor: torch.Tensor
    trained: bool
    shared: bool = False  # a weight of the first and the last layer, which two stages hold
    counted: bool = True  # false: the last stage's copy of it


def initial_values(name: str, shape: Sequence[int], deviation: float, seed: int) -> torch.Tensor:
    """Return fp32 values drawn from a normal distribution, as a function of (seed, name) alone.

    Tenuto's own models begin with them, so a module that sets its parameters to these values under
    the same names begins as those models do. `shape` is that of the result.
    """
    return _tenuto.initial(name, list(shape), float(deviation), int(seed))


def build(source: ModelSource, seed: int) -> list[nn.Module]:
    """Make the layers anew. A function is called under the seed; modules are copied."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made: Any = copy.deepcopy(source) if isinstance(source, nn.Sequential) else source()
    layers = list(made) if isinstance(made, (nn.Sequential, nn.ModuleList, list, tuple)) else None
    if not layers or not all(isinstance(layer, nn.Module) for layer in layers):
        found = "an empty list" if layers == [] else type(made).__name__
        raise TypeError(
            f"the model is {found}: expected an nn.Sequential or a list of modules, or a function "
            "that returns one of them; the model can be cut between any two of its modules"
        )
    return layers


def title_of(layers: Sequence[nn.Module], index: int) -> str:
    """Return the name of a layer for people."""
    return f"layer {index} ({type(layers[index]).__name__})"


def tensors_of(layer: nn.Module) -> Iterable[tuple[str, torch.Tensor, bool]]:
    """Yield what checkpoints hold of a module: name, tensor, and whether it is a parameter.

    These are the parameters, and the fp32 buffers that are part of its state.
    """
    for name, parameter in layer.named_parameters():
        yield name, parameter, True
    for place, owner in layer.named_modules():
        for name, buffer in owner.named_buffers(recurse=False):
            if name not in owner._non_persistent_buffers_set and buffer.dtype == torch.float32:
                yield f"{place}.{name}" if place else name, buffer, False


def _name_of(layer: nn.Module, index: int, name: str) -> str:
    """Return the name of a layer's tensor in checkpoints. A layer may know the model's own name."""
    own = getattr(layer, "name_in_model", None)
    return own(name) if callable(own) else f"{index}.{name}"


def state_of(layers: Sequence[nn.Module]) -> dict[str, Any]:
    """Return a state dict of the uncut model: with all buffers, and all names of shared tensors."""
    return {
        _name_of(layer, index, name): value
        for index, layer in enumerate(layers)
        for name, value in layer.state_dict().items()
    }


def _check_parameter(name: str, tensor: torch.Tensor) -> None:
    if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
        raise TypeError(f"parameter {name} has no shape yet: run lazy modules once in the function")
    if tensor.dtype != torch.float32 or tensor.layout != torch.strided or tensor.is_meta:
        raise TypeError(
            f"parameter {name} is {tensor.dtype} on {tensor.device}: expected torch.float32 on the "
            'CPU; device.precision = "bf16" computes in less'
        )
    if tensor.device.type != "cpu":
        raise TypeError(f"parameter {name} is on {tensor.device}: leave it on the CPU")


def cards_of(layers: Sequence[nn.Module], first: int, end: int) -> list[Card]:
    """Return the parameters and fp32 buffers of layers [first, end), in the order of the model.

    A tensor that several modules share has one card, under its first name in the whole model.
    Buffers of other types, and those that are not part of a module's state, are not among them:
    they must never change.

    Raises ValueError if a layer outside shares a parameter, unless these two are the first and the
    last one and it is a matrix (a tied weight), and TypeError if it is not fp32.
    """
    names: dict[int, str] = {}
    users: dict[int, list[int]] = {}
    cards: dict[int, Card] = {}
    for index, layer in enumerate(layers):
        for own_name, tensor, is_parameter in tensors_of(layer):
            name = _name_of(layer, index, own_name)
            names.setdefault(id(tensor), name)
            users.setdefault(id(tensor), []).append(index)
            if is_parameter:
                _check_parameter(name, tensor)
            if first <= index < end:
                trained = is_parameter and tensor.requires_grad
                cards.setdefault(id(tensor), Card(names[id(tensor)], tensor, trained))
    for key, card in cards.items():
        outside = [user for user in users[key] if not first <= user < end]
        if outside and _is_tied(card, users[key], len(layers)):
            cards[key] = card._replace(shared=True, counted=first == 0)
        elif outside:
            inside = next(user for user in users[key] if first <= user < end)
            raise ValueError(
                f"layers {min(inside, outside[0])} and {max(inside, outside[0])} share {card.name},"
                " and this plan cuts the model between them: use fewer stages, or do not share it"
            )
    return list(cards.values())


def move_buffers(layers: Sequence[nn.Module], cards: Sequence[Card], device: str) -> None:
    """Move the buffers that are no cards, such as rotary frequencies, to where the layers compute.

    The engine itself moves the cards. Several modules may have one buffer; then they keep one.
    """
    stays = {id(card.tensor) for card in cards}
    owned = [
        (owner, name, buffer)
        for layer in layers
        for owner in layer.modules()
        for name, buffer in owner._buffers.items()
        if buffer is not None and id(buffer) not in stays
    ]
    there = {id(buffer): buffer.to(device) for _, _, buffer in owned}
    for owner, name, buffer in owned:
        owner._buffers[name] = there[id(buffer)]


def computing(precision: str, device: str = "cpu") -> AbstractContextManager[None]:
    """Return what surrounds a layer's forward and the loss: "bf16" is torch.autocast.

    `device` is "cpu" or "cuda".

    A context that autocast leaves forgets the casts of weights that it has made. So each layer
    casts its own weights in each forward, and no cast outlives an update.
    """
    return torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")


def _is_tied(card: Card, users: Sequence[int], layer_count: int) -> bool:
    """Return whether the two stages at the ends may share a parameter: they sum its gradients."""
    return card.trained and card.tensor.dim() > 1 and set(users) == {0, layer_count - 1}


def ties_weights(layers: Sequence[nn.Module]) -> bool:
    """Return whether the first layer and the last one, and no other, share a parameter."""
    if len(layers) < 2:
        return False
    first = cards_of(layers, 0, len(layers))
    owners = [{id(p) for p in layer.parameters()} for layer in layers]
    return any(
        _is_tied(card, [i for i, own in enumerate(owners) if id(card.tensor) in own], len(layers))
        for card in first
    )


class Trace:
    """What crosses between the layers of a model, and a digest of what it begins with.

    `precision` is that of the job, "fp32" or "bf16". cuts[i] are the tensors in front of layer i,
    and cuts[-1] the outputs, all without memory.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        inputs: tuple[torch.Tensor, ...],
        precision: str = "fp32",
    ) -> None:
        self.cuts = [self._without_memory(inputs)]
        self.outputs = inputs
        self._sum = hashlib.sha256()
        for card in cards_of(layers, 0, len(layers)):
            self._add(card)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for index, layer in enumerate(layers):
                title = title_of(layers, index)
                guard = BufferGuard(layer, title, by_value=True)
                with computing(precision):
                    self.outputs = as_tensors(layer(*self.outputs), title)
                guard.check()
                self.cuts.append(self._without_memory(self.outputs))

    @staticmethod
    def _without_memory(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(torch.empty(t.shape, dtype=t.dtype, device="meta") for t in tensors)

    def _add(self, card: Card) -> None:
        values = card.tensor.detach().contiguous()
        self._sum.update(f"{card.name} {tuple(values.shape)} {card.trained};".encode())
        self._sum.update(ctypes.string_at(values.data_ptr(), values.nbytes))

    def finish(self, text: str) -> str:
        """Return the digest of parameters, cuts and `text`, which is what else must be alike."""
        cuts = [[(str(t.dtype), tuple(t.shape)) for t in cut] for cut in self.cuts]
        self._sum.update(f"{cuts} {text}".encode())
        return self._sum.hexdigest()

    def message_bytes(self) -> int:
        """Return about the size of the largest message between two layers."""
        sizes = [sum(t.numel() * t.element_size() for t in cut) for cut in self.cuts[1:-1]]
        return max(sizes, default=4)


class BufferGuard:
    """Notices that a training forward has changed a buffer, and refuses the module by name.

    A step that was interrupted runs some micro-batches again, and replicas see different rows, so a
    buffer that a forward changes would depend on what happened in the run.
    """

    def __init__(self, layer: nn.Module, title: str, by_value: bool = False) -> None:
        """Look at the buffers. By value: some of torch's kernels change buffers unnoticed."""
        self._layer = layer
        self._title = title
        self._before = [
            (owner, name, buffer, buffer._version, buffer.clone() if by_value else None)
            for owner in layer.modules()
            for name, buffer in owner._buffers.items()
            if buffer is not None
        ]

    def check(self) -> None:
        """Raise TypeError if a buffer is another one than before, or has been written."""
        for owner, name, buffer, version, values in self._before:
            same = owner._buffers.get(name) is buffer and buffer._version == version
            if same and (values is None or torch.equal(values, buffer)):
                continue
            place = next((path for path, of in self._layer.named_modules() if of is owner), "")
            full = f"{place}.{name}" if place else name
            raise TypeError(
                f"{self._title}: {type(owner).__name__} changes its buffer {full} in a training "
                "forward, which a step that is run again would do twice: use a module without "
                "such a buffer (GroupNorm or LayerNorm for BatchNorm), or call eval() on it"
            )
