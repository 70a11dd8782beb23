"""Causal language models of Hugging Face's transformers as layers of a Pipeline.

from_config() and from_pretrained() give what Pipeline takes as its model, and causal_loss is its
loss. Pipeline.save() writes a checkpoint so that transformers reads it. docs/huggingface.md shows
how. A model is cut without a change to its code: each layer is the model's own forward, in which
the modules that other layers compute are replaced by ones that pass their input on.
"""

from __future__ import annotations

import copy
import importlib
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
import torch.nn.functional as F
from torch import nn

from ._model import tensors_of

__all__ = ["causal_loss", "from_config", "from_pretrained", "layers"]

Path = Union[str, "os.PathLike[str]"]
# What blocks are called with is kept for so many shapes of a micro-batch.
_MOST_SHAPES = 8

# The children of a base model in the order in which its forward calls them, each with the names of
# its inputs and outputs. Newer configurations carry this themselves, as base_model_pp_plan.
_PLANS: Mapping[str, Mapping[str, tuple[list[str], list[str]]]] = {
    "gpt2": {
        "wte": (["input_ids"], ["inputs_embeds"]),
        "wpe": (["position_ids"], ["position_embeds"]),
        "drop": (["inputs_embeds"], ["hidden_states"]),
        "h": (["hidden_states", "attention_mask"], ["hidden_states"]),
        "ln_f": (["hidden_states"], ["hidden_states"]),
    },
}


def layers(model: Any) -> list[nn.Module]:
    """Return the layers of a causal language model: the embedding, each block, norm and head.

    The first layer takes input_ids [rows, tokens], and the last one returns the logits [rows,
    tokens, vocabulary]. If the inputs are (input_ids, attention_mask), the mask of shape [rows,
    tokens] passes through all layers. The parameters are the model's own, and checkpoints name
    them as the model does.

    Raises TypeError if it is no such model, and ValueError if its forward cannot be cut.
    """
    base = getattr(model, "base_model", None)
    if base is None or base is model or model.get_output_embeddings() is None:
        raise TypeError(
            f"{type(model).__name__} is no causal language model of transformers: expected one with"
            " a head, such as AutoModelForCausalLM makes"
        )
    name = type(model).__name__
    before, blocks, after = _parts_of(name, base)
    count = len(getattr(base, blocks))
    cut = _Cut(model, base, before, blocks, after)
    cut.check()
    cut.share()
    found: list[nn.Module] = [cut.layer(None, embeds=True)]
    found += [cut.layer(index) for index in range(count)]
    return [*found, cut.layer(None, head=True)]


def from_config(config: Any) -> Callable[[], list[nn.Module]]:
    """Return a function that makes the layers of a model with random values, for Pipeline.

    `config` is a configuration of transformers, such as GPT2Config(n_layer=4).
    """

    def make() -> list[nn.Module]:
        auto = _transformers().AutoModelForCausalLM
        return layers(auto.from_config(copy.deepcopy(config), dtype=torch.float32))

    return make


def from_pretrained(folder: Path) -> Callable[[], list[nn.Module]]:
    """Return a function that reads the layers of a model from a folder, for Pipeline.

    The folder has config.json and the safetensors files, as save_pretrained writes them; nothing is
    downloaded. Each worker reads it, so it must be there on every host.
    """
    place = os.path.abspath(os.fspath(folder))
    if not os.path.isfile(os.path.join(place, "config.json")):
        raise ValueError(f"{place} has no config.json: expected a folder that save_pretrained made")

    def make() -> list[nn.Module]:
        auto = _transformers().AutoModelForCausalLM
        model = auto.from_pretrained(place, local_files_only=True, dtype=torch.float32)
        return layers(model.train())  # it comes in evaluation mode, without dropout

    return make


def causal_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of the next token, in nats: that of transformers' own models.

    `labels` [rows, tokens] are the input_ids themselves: the logits [rows, tokens, vocabulary] at
    one place are compared with the token at the next. Labels of -100 are left out. Then the mean is
    that of the labels in the micro-batch, so micro-batches with few labels weigh as much as others.
    """
    wanted = F.pad(labels, (0, 1), value=-100)[:, 1:]
    return F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten(), ignore_index=-100)


def _transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(
            "tenuto.huggingface needs the package transformers, which this Python does not have: "
            "install transformers and safetensors"
        ) from error


def _parts_of(name: str, base: nn.Module) -> tuple[dict[str, bool], str, list[str]]:
    """Return the children of a base model: those before the blocks, the blocks, those after them.

    Those before are named with whether they look up positions.
    """
    config: Any = base.config
    plan = getattr(config, "base_model_pp_plan", None) or _PLANS.get(config.model_type)
    if not plan:
        raise ValueError(
            f"{name} cannot be cut: its configuration has no base_model_pp_plan; expected GPT-2, "
            "Llama or another model whose configuration has one"
        )
    children = dict(base.named_children())
    lists = [child for child in plan if isinstance(children.get(child), nn.ModuleList)]
    missing = [child for child in plan if child not in children]
    if len(lists) != 1 or missing:
        raise ValueError(
            f"{name} cannot be cut: its base_model_pp_plan names {', '.join(plan)}, expected its "
            f"own modules with one list of blocks among them, and found {', '.join(children)}"
        )
    for child, module in [("", base), *children.items()]:
        if child not in plan and _has_state(module, whole=child != ""):
            raise ValueError(
                f"{name} cannot be cut: {child or 'the base model'} has parameters and is not in "
                "its base_model_pp_plan, so it is not known which layer computes it"
            )
    places = list(plan)
    middle = places.index(lists[0])
    before = {child: "position_ids" in plan[child][0] for child in places[:middle]}
    return before, lists[0], places[middle + 1 :]


def _has_state(module: nn.Module, whole: bool) -> bool:
    """Return whether a module, or the whole of it, has something that a checkpoint must hold."""
    for owner in module.modules() if whole else [module]:
        buffers = set(dict(owner.named_buffers(recurse=False))) - owner._non_persistent_buffers_set
        if buffers or any(True for _ in owner.parameters(recurse=False)):
            return True
    return False


class _PassOn(nn.Module):
    """In the place of a module that another layer computes: returns its first input."""

    def __init__(self, instead_of: Optional[nn.Module] = None) -> None:
        super().__init__()
        # Some models ask their blocks for plain attributes, such as the kind of their attention.
        for name, value in vars(instead_of).items() if instead_of is not None else ():
            if not (name.startswith("_") or name == "training" or callable(value)):
                setattr(self, name, value)

    # Not forward(): a layer calls one of these for each block of the model, and nn.Module's own way
    # takes ten times as long.
    def __call__(self, first: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return first


class _Recorder(_PassOn):
    """Notes what a block is called with beside the hidden states, and returns these."""

    arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    def __call__(self, first: torch.Tensor, *more: Any, **words: Any) -> torch.Tensor:
        self.arguments = (more, words)
        return first


class _Kept(NamedTuple):
    """What all blocks are called with for hidden states of one shape, and one mask."""

    mask: Optional[torch.Tensor]  # a copy: that of the micro-batch may be memory of a message
    seen: Optional[Callable[[], Optional[torch.Tensor]]]  # gives the mask that was last the same
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]]
    versions: list[tuple[torch.Tensor, int]]  # of the tensors in them


class _Arguments:
    """Makes what the blocks of a model are called with: masks, positions, rotary embeddings.

    The model's forward makes them from the shape of the hidden states and from the mask, for all of
    its blocks. So the layers of a stage share them, and so do micro-batches of one shape.
    """

    def __init__(self, shell: nn.Module, recorders: Sequence[_Recorder]) -> None:
        """`shell` is the base model without parts, whose blocks are the recorders."""
        self._shell, self._recorders = shell, list(recorders)
        self._known: OrderedDict[Any, _Kept] = OrderedDict()

    def of(
        self, block: int, values: torch.Tensor, mask: Optional[torch.Tensor]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the other arguments of a block, by place and by name."""
        device = values.device
        autocast = torch.is_autocast_enabled(device.type)
        key = (values.shape, values.dtype, device, autocast, mask is None)
        kept = self._known.get(key)
        if kept is None or not self._is_of(kept, mask):
            kept = self._keep(key, values, mask)
        elif mask is not None and kept.seen is not None and kept.seen() is not mask:
            self._known[key] = kept._replace(seen=weakref.ref(mask))
        return kept.arguments[block]

    def train(self, trains: bool) -> _Arguments:
        """Set the mode of the forward."""
        self._shell.train(trains)
        return self

    def make(
        self, values: torch.Tensor, mask: Optional[torch.Tensor]
    ) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Run the model's forward without any part, and return the arguments of all blocks."""
        words: dict[str, Any] = {"inputs_embeds": values, "use_cache": False}
        if mask is not None:
            words["attention_mask"] = mask
        with torch.no_grad():
            self._shell(**words)
        found = [recorder.arguments for recorder in self._recorders]
        for recorder in self._recorders:
            recorder.arguments = ((), {})
        return found

    @staticmethod
    def _is_of(kept: _Kept, mask: Optional[torch.Tensor]) -> bool:
        if any(tensor._version != version for tensor, version in kept.versions):
            return False  # a block has written into them
        if mask is None or kept.mask is None or kept.seen is None:
            return mask is kept.mask
        # The layers of a stage pass the same tensor on.
        return kept.seen() is mask or torch.equal(kept.mask, mask)

    def _keep(self, key: Any, values: torch.Tensor, mask: Optional[torch.Tensor]) -> _Kept:
        own = None if mask is None else mask.clone()
        arguments = self.make(values, own)
        versions = [(one, one._version) for one in _tensors_in(arguments)]
        kept = _Kept(own, None if mask is None else weakref.ref(mask), arguments, versions)
        self._known[key] = kept
        self._known.move_to_end(key)
        while len(self._known) > _MOST_SHAPES:
            self._known.popitem(last=False)
        return kept


class _Blocks(nn.ModuleList):
    """The blocks of a layer; part of it is a list, because a ModuleList takes long to make."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(self._modules.values())[index]
        return super().__getitem__(index)


class _NoPositions(nn.Module):
    """In the place of an embedding of positions: they have been added in the first layer."""

    def forward(self, *_: Any, **__: Any) -> torch.Tensor:
        return torch.zeros(())


class _Layer(nn.Module):
    """One layer: the model with all but a few of its modules replaced."""

    def __init__(
        self,
        whole: nn.Module,
        embeds: bool,
        head: bool,
        block: Optional[tuple[int, nn.Module]] = None,
        arguments: Optional[_Arguments] = None,
    ) -> None:
        """`block` is the one that the layer has, with its place; `arguments` make what it is given.

        Without `arguments` the layer runs the forward of the base model around its block.
        """
        super().__init__()
        self.whole = whole
        self._embeds = embeds
        self._head = head
        self._block = block  # a tuple, because `whole` has it as a module
        self._arguments = arguments

    def name_in_model(self, name: str) -> str:
        """Return how the uncut model names a parameter of this layer."""
        return name.removeprefix("whole.")

    def save_model(self, parameters: Mapping[str, torch.Tensor], folder: str) -> None:
        """Write the uncut model with these parameters: config.json and model.safetensors."""
        whole: Any = self.whole
        model = type(whole)(copy.deepcopy(whole.config)).float()
        if getattr(whole, "generation_config", None) is not None:
            model.generation_config = copy.deepcopy(whole.generation_config)
        _fill(model, parameters)
        model.save_pretrained(folder)

    def forward(
        self, values: torch.Tensor, attention_mask: Optional[torch.Tensor] = None
    ) -> Union[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Compute the layer. The head is the model's own forward, the others that of its base.

        A layer with a block alone calls this, where the base's forward does nothing else.
        """
        if self._arguments is not None and self._block is not None:
            index, block = self._block
            more, words = self._arguments.of(index, values, attention_mask)
            result: Any = block(values, *more, **words)
            if isinstance(result, tuple):
                result = result[0]
            return result if attention_mask is None else (result, attention_mask)
        module: Any = self.whole if self._head else self.whole.base_model
        words = {"input_ids" if self._embeds else "inputs_embeds": values, "use_cache": False}
        if attention_mask is not None:
            words["attention_mask"] = attention_mask
        result = module(**words)[0]
        return result if self._head or attention_mask is None else (result, attention_mask)


class _Cut:
    """Makes the layers of one model."""

    def __init__(
        self,
        model: Any,
        base: nn.Module,
        before: Mapping[str, bool],
        blocks: str,
        after: Sequence[str],
    ) -> None:
        self._model, self._base, self._list, self._after = model, base, blocks, after
        self._before = {
            child: _NoPositions() if looks_up else _PassOn() for child, looks_up in before.items()
        }
        self._blocks = list(getattr(base, blocks))
        self._passed = [_PassOn(block) for block in self._blocks]
        self._arguments: Optional[_Arguments] = None

    def layer(self, block: Optional[int], embeds: bool = False, head: bool = False) -> _Layer:
        """Return the layer with this block, with what comes before the blocks, or after them."""
        kept: list[nn.Module] = list(self._passed)
        if block is not None:
            kept[block] = self._blocks[block]
        whole = _copy(self._model)
        if not head:
            whole._modules.clear()
        whole._modules[self._model.base_model_prefix] = self._base_of(kept, embeds, head)
        if block is None or embeds or head:
            return _Layer(whole, embeds, head)
        return _Layer(whole, embeds, head, (block, self._blocks[block]), self._arguments)

    def _base_of(self, blocks: Sequence[nn.Module], embeds: bool, head: bool) -> nn.Module:
        base = _copy(self._base)
        # The list keeps its length, because forwards ask for its places.
        base._modules[self._list] = _Blocks(blocks)
        if not embeds:
            base._modules.update(self._before)
        if not head:
            base._modules.update({child: _PassOn() for child in self._after})
        return base

    def share(self) -> None:
        """Let the layers share what their blocks are called with, if it is as _Arguments needs it.

        It must not depend on the values of the hidden states or on the mode, and have no gradient.
        Hooks on the model itself want to see each of its calls, so with them nothing is shared.
        """
        for module in (self._model, self._base):
            if module._forward_hooks or module._forward_pre_hooks:
                return
        recorders = [_Recorder(block) for block in self._blocks]
        arguments = _Arguments(self._base_of(recorders, False, False), recorders)
        trial = copy.deepcopy(arguments)  # so that the mode of the model's own modules stays
        config: Any = self._base.config
        mask = torch.ones((2, 3), dtype=torch.int64)
        mask[0, 0] = 0
        for given in (None, mask):
            found = []
            for seed, trains in ((1, True), (2, True), (3, False)):
                drawn = torch.Generator().manual_seed(seed)
                values = torch.randn((2, 3, config.hidden_size), generator=drawn)
                try:
                    found.append(trial.train(trains).make(values, given))
                except Exception:  # without a mask, check() has tried it
                    return
            if any(tensor.requires_grad for tensor in _tensors_in(found)):
                return
            if not all(_alike(found[0], other) for other in found[1:]):
                return
        self._arguments = arguments

    def check(self) -> None:
        """Raise ValueError if the forward does more to hidden states than the modules it calls.

        A layer would then do this again, as where embeddings are scaled in the forward.
        """
        config: Any = self._base.config
        name = type(self._model).__name__
        # In training mode, and a copy, so that the mode of the model's own modules stays.
        shell = copy.deepcopy(self.layer(None)).train()
        # A generator of its own: the model's values are drawn from torch's.
        values = torch.randn((1, 2, config.hidden_size), generator=torch.Generator().manual_seed(1))
        try:
            with torch.no_grad():
                same = torch.equal(shell(values), values)
        except Exception as error:
            raise ValueError(
                f"{name} cannot be cut: its forward without blocks fails with "
                f"{type(error).__name__}: {error}"
            ) from error
        if not same:
            raise ValueError(
                f"{name} cannot be cut: its forward changes the hidden states outside of the "
                f"modules {', '.join([*self._before, self._list, *self._after])}, and each layer "
                "would do this again"
            )


def _copy(module: nn.Module) -> nn.Module:
    """Return a copy with children of its own; parameters, hooks and buffers are the same ones."""
    made = copy.copy(module)
    made._modules = dict(module._modules)
    return made


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in tuples, lists and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors_in(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors_in(one)


def _alike(one: Any, other: Any) -> bool:
    """Return whether two values are the same, with the same tensors bit for bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one is other or one == other)


def _fill(model: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Copy values into a model; raise ValueError unless they are those of all its parameters."""
    # A tied weight is one tensor with several names in the model, and has the first in the files.
    own = {name: tensor for name, tensor, _ in tensors_of(model)}
    for name in [*own, *values]:
        found, wanted = values.get(name), own.get(name)
        if found is None or wanted is None or found.shape != wanted.shape:
            raise ValueError(
                f"the configuration of {type(model).__name__} is not that of the trained model: "
                f"{name} is {_shape_of(found)} in the checkpoint, and {_shape_of(wanted)} in a "
                "model that the configuration makes: change the configuration with the model"
            )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(values[name])


def _shape_of(tensor: Optional[torch.Tensor]) -> str:
    return "missing" if tensor is None else str(list(tensor.shape))
