"""Checkpoints as tensors of the uncut model, without a run: read, and exchanged with PyTorch's DCP.

A checkpoint is a folder with safetensors files, one for each stage, and a manifest
(docs/formats-run.md). Nothing here needs more than torch.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import nn

from . import _tenuto
from ._model import cards_of

Path = Union[str, "os.PathLike[str]"]

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_PREFIX = "optimizer."
# The tensors of the engine's own optimizers: Tenuto's names, and torch's. Those of a script's
# optimizer have torch's names in a checkpoint, too.
_OWN = {
    "adamw": {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"},
    "sgd": {"momentum": "momentum_buffer"},
}
_OUR_KEY = "tenuto"


class Checkpoint(NamedTuple):
    """All that a checkpoint holds."""

    manifest: dict[str, Any]
    metadata: dict[str, str]
    parameters: dict[str, torch.Tensor]
    optimizer: dict[str, dict[str, torch.Tensor]]  # by parameter, then by Tenuto's name


def load_checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    """Return the parameters of a checkpoint as a state dict of the uncut model.

    folder  a checkpoint, or a run, of which the newest checkpoint is read.

    The names are those of an nn.Sequential of the model's layers, the tensors fp32 on the CPU. A
    parameter that layers share has one entry, under its first name.

    Errors: FileNotFoundError and ValueError with a sentence: there is no checkpoint, it is damaged,
    or it is of server shards.
    """
    return read_checkpoint(folder).parameters


def load_optimizer(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Return the optimizer's state of a checkpoint, by parameter, under torch's names.

    AdamW has `exp_avg`, `exp_avg_sq` and `step`, SGD `momentum_buffer`, and an optimizer of the
    script the tensors that it has in torch, and `step`. `folder` and errors are as for
    load_checkpoint().
    """
    return _state_for_torch(read_checkpoint(folder))


def to_dcp(folder: Path, out: Path) -> None:
    """Write a checkpoint in the format of torch.distributed.checkpoint, into the new folder `out`.

    The keys are `model.NAME` and `optimizer.state.NAME.exp_avg` and so on; `tenuto` has what
    from_dcp() needs beside them. One process does it, without a process group.

    Errors: those of load_checkpoint(); FileExistsError when `out` exists.
    """
    import torch.distributed.checkpoint as dcp

    checkpoint = read_checkpoint(folder)
    if os.path.exists(out):
        raise FileExistsError(f"{os.fspath(out)} exists already: give the name of a new folder")
    ours = {"manifest": checkpoint.manifest, "metadata": checkpoint.metadata}
    state: dict[str, Any] = {
        "model": checkpoint.parameters,
        "optimizer": {"state": _state_for_torch(checkpoint)},
        _OUR_KEY: torch.frombuffer(bytearray(json.dumps(ours).encode()), dtype=torch.uint8),
    }
    dcp.save(state, storage_writer=dcp.FileSystemWriter(os.fspath(out)), no_dist=True)


def from_dcp(folder: Path, out: Path, *, like: Optional[Path] = None) -> str:
    """Make a checkpoint of Tenuto from one of torch.distributed.checkpoint.

    folder  the folder that to_dcp() or dcp.save() has written: parameters under `model.NAME`, or
            NAME alone, and the optimizer's state under `optimizer.state.NAME.`.
    out     a folder for runs: the checkpoint becomes `out/checkpoint-STEP`.
    like    a checkpoint, or a run, of the same model, which gives the settings and the step. It may
            be left out if to_dcp() has written the folder.

    Returns the path of the new checkpoint. The model is one stage there; a run on any layout can go
    on from it (`tenuto launch --resume`, with `job.directory` and `job.name` set to `out`).

    Errors: ValueError with a sentence when a parameter or a part of the optimizer's state is
    missing, or has another shape; FileExistsError when the checkpoint exists.
    """
    flat = _read_dcp(os.fspath(folder))
    if like is not None:
        model = read_checkpoint(like)
        manifest, metadata = model.manifest, model.metadata
    elif _OUR_KEY in flat:
        ours = json.loads(_bytes_of(flat[_OUR_KEY]))
        manifest, metadata = ours["manifest"], ours["metadata"]
        model = None
    else:
        raise ValueError(
            f"{os.fspath(folder)} has no settings of Tenuto: give like=CHECKPOINT, a checkpoint "
            "of the same model"
        )
    tensors = _tensors_of_dcp(flat, metadata["optimizer"])
    if model is not None:
        _expect_same(tensors, dict(_named(model)), os.fspath(folder))
    target = os.path.join(os.fspath(out), f"checkpoint-{manifest['step']}")
    if os.path.exists(target):
        raise FileExistsError(f"{target} exists already: give another folder")
    _write(target, tensors, manifest, metadata)
    return target


def _state_for_torch(checkpoint: Checkpoint) -> dict[str, dict[str, torch.Tensor]]:
    optimizer = checkpoint.metadata.get("optimizer")
    names = _OWN.get(optimizer or "", {})
    state = {
        name: {names.get(key, key): tensor for key, tensor in tensors.items()}
        for name, tensors in checkpoint.optimizer.items()
    }
    if optimizer != "sgd":
        for tensors in state.values():
            tensors["step"] = torch.tensor(float(checkpoint.metadata["optimizer_updates"]))
    return state


def _folder_of(path: Path) -> str:
    """Return the folder of the checkpoint itself."""
    folder = os.fspath(path)
    if os.path.isfile(os.path.join(folder, "manifest.json")):
        return folder
    names = os.listdir(folder) if os.path.isdir(folder) else []
    # The manifest is written last: without it, a checkpoint is not whole.
    steps = [
        int(name[11:])
        for name in names
        if re.fullmatch(r"checkpoint-\d+", name)
        and os.path.isfile(os.path.join(folder, name, "manifest.json"))
    ]
    if not steps:
        raise FileNotFoundError(
            f"{folder} holds no checkpoint: expected a folder checkpoint-STEP, or a run with one"
        )
    return os.path.join(folder, f"checkpoint-{max(steps)}")


def _read_manifest(folder: str) -> dict[str, Any]:
    """Read a manifest, and expect its files to be as it says."""
    try:
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            manifest: dict[str, Any] = json.load(file)
        files = [(one["name"], one["bytes"], one["crc32c"]) for one in manifest["files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder} is no whole checkpoint: manifest.json: {error}") from None
    for name, size, checksum in files:
        found = _tenuto.describe_file(folder, name)
        if found != (size, checksum):
            raise ValueError(
                f"{os.path.join(folder, name)} is damaged: expected {size} bytes with checksum "
                f"{checksum}, found {found[0]} with {found[1]}: take another checkpoint"
            )
    return manifest


def read_trained(path: Path, layers: Sequence[nn.Module]) -> tuple[dict[str, torch.Tensor], int]:
    """Read the parameters of a checkpoint of these layers by name, and the steps before it.

    The checkpoint may also be of server shards, whose files do not know names. Raises what
    load_checkpoint() raises.
    """
    folder = _folder_of(path)
    manifest = _read_manifest(folder)
    step = int(manifest["step"])
    if "servers" not in manifest:
        return _read_files(folder, manifest).parameters, step
    files = [os.path.join(folder, one["name"]) for one in manifest["files"]]
    parts = [(part["layer_first"], part["layer_end"]) for part in manifest["partition"]]
    if parts[-1][1] != len(layers):
        raise ValueError(
            f"{folder} is of another model: it has {parts[-1][1]} layers, and this one has "
            f"{len(layers)}"
        )
    parameters: dict[str, torch.Tensor] = {}
    for stage, (first, end) in enumerate(parts):
        cards = cards_of(layers, first, end)
        known = [(card.name, list(card.tensor.shape), card.trained) for card in cards]
        values = _tenuto.served_parameters(files, stage, known)
        parameters.update(zip((card.name for card in cards), values))
    return parameters, step


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, or the newest one of a run. Raises what load_checkpoint() raises."""
    folder = _folder_of(path)
    manifest = _read_manifest(folder)
    if "servers" in manifest:
        raise ValueError(
            f"{folder} is of server shards, whose files do not know the names of parameters: give "
            "it to load(), save() or evaluate() of a Pipeline with its modules"
        )
    return _read_files(folder, manifest)


def _read_files(folder: str, manifest: dict[str, Any]) -> Checkpoint:
    """Read the files of stages. Requires: the manifest is that of the folder, and checked."""
    parameters: dict[str, torch.Tensor] = {}
    optimizer: dict[str, dict[str, torch.Tensor]] = {}
    metadata: dict[str, str] = {}
    for file in manifest["files"]:
        metadata, tensors = _read_safetensors(os.path.join(folder, file["name"]))
        if "optimizer" not in metadata:
            raise ValueError(f"{folder} is of a paced device, which has no model")
        for key, tensor in tensors.items():
            if key.startswith(_PREFIX):
                whose, kind = key[len(_PREFIX) :].rsplit(".", 1)
                optimizer.setdefault(whose, {})[kind] = tensor
            else:
                parameters[key] = tensor
    return Checkpoint(manifest, metadata, parameters, optimizer)


def _read_safetensors(path: str) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Read a whole file: its metadata and its tensors, which do not depend on the file."""
    size = os.path.getsize(path)
    damaged = f"{path} is damaged: take another checkpoint"
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8:
            raise ValueError(damaged)
        header = json.loads(file.read(length))
    first = 8 + length
    data = torch.from_file(path, shared=False, size=size, dtype=torch.uint8)
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind = _TYPES[entry["dtype"]]
        if not 0 <= begin <= end <= size - first:
            raise ValueError(damaged)
        # A copy: the place of a tensor in a file need not be a multiple of its elements' size.
        part = data[first + begin : first + end].clone()
        tensors[name] = part.view(kind).reshape(entry["shape"])
    return metadata, tensors


def _named(checkpoint: Checkpoint) -> Iterable[tuple[str, torch.Tensor]]:
    """All tensors under their names in a file."""
    yield from checkpoint.parameters.items()
    for name, tensors in checkpoint.optimizer.items():
        for kind, tensor in tensors.items():
            yield f"{_PREFIX}{name}.{kind}", tensor


def _read_dcp(folder: str) -> dict[str, torch.Tensor]:
    """Read all tensors of a DCP folder, under their flat names."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    if not os.path.isfile(os.path.join(folder, ".metadata")):
        raise FileNotFoundError(
            f"{folder} has no .metadata: expected a folder that torch.distributed.checkpoint has "
            "written"
        )
    reader = dcp.FileSystemReader(folder)
    flat: dict[str, Any] = {
        name: torch.empty(about.size, dtype=about.properties.dtype)
        for name, about in reader.read_metadata().state_dict_metadata.items()
        if isinstance(about, TensorStorageMetadata)
    }
    dcp.load(flat, storage_reader=reader, no_dist=True)
    return flat


def _tensors_of_dcp(flat: Mapping[str, torch.Tensor], optimizer: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a DCP folder under their names in a file of Tenuto."""
    parameters = {
        name[len("model.") :]: tensor for name, tensor in flat.items() if name.startswith("model.")
    } or {
        name: tensor
        for name, tensor in flat.items()
        if name != _OUR_KEY and not name.startswith(_PREFIX)
    }
    kinds = _kinds_of(flat, parameters, optimizer)
    found = {name: tensor.to(torch.float32) for name, tensor in parameters.items()}
    for own, kind in kinds.items():
        for name, tensor in parameters.items():
            key = f"{_PREFIX}state.{name}.{kind}"
            if key not in flat:
                raise ValueError(
                    f"{key} is missing: expected the state of {optimizer} for each parameter"
                )
            if flat[key].shape != tensor.shape:
                raise ValueError(
                    f"{key} has shape {list(flat[key].shape)}: expected {list(tensor.shape)}, as "
                    "its parameter"
                )
            found[f"{_PREFIX}{name}.{own}"] = flat[key].to(torch.float32)
    return found


def _kinds_of(
    flat: Mapping[str, torch.Tensor], parameters: Mapping[str, torch.Tensor], optimizer: str
) -> dict[str, str]:
    """Return the tensors of an optimizer's state: their names in a file of Tenuto, and in DCP's."""
    if optimizer in _OWN:
        return _OWN[optimizer]
    # Those of a script's optimizer are as large as their parameter; what else it has are numbers.
    kinds = set()
    for name, tensor in parameters.items():
        prefix = f"{_PREFIX}state.{name}."
        for key, value in flat.items():
            if key.startswith(prefix) and value.numel() > 1 and value.shape == tensor.shape:
                kinds.add(key[len(prefix) :])
    return {kind: kind for kind in sorted(kinds)}


def _expect_same(
    tensors: Mapping[str, torch.Tensor], like: Mapping[str, torch.Tensor], folder: str
) -> None:
    for name, tensor in like.items():
        if name not in tensors:
            raise ValueError(f"{folder} has no {name}, which the checkpoint given as like has")
        if tensors[name].shape != tensor.shape:
            raise ValueError(
                f"{folder}: {name} has shape {list(tensors[name].shape)}, in the checkpoint given "
                f"as like {list(tensor.shape)}: they are of two models"
            )
    for name in tensors:
        if name not in like:
            raise ValueError(f"{folder} has {name}, which the checkpoint given as like has not")


def _bytes_of(tensor: torch.Tensor) -> bytes:
    whole = tensor.detach().contiguous()
    return ctypes.string_at(whole.data_ptr(), whole.nbytes) if whole.numel() else b""


def _write(
    target: str,
    tensors: Mapping[str, torch.Tensor],
    manifest: Mapping[str, Any],
    metadata: Mapping[str, str],
) -> None:
    """Write a checkpoint of one stage; under its name it is complete."""
    unfinished = target + ".tmp"
    shutil.rmtree(unfinished, ignore_errors=True)
    os.makedirs(unfinished)
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    place = 0
    for name, tensor in tensors.items():
        end = place + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    name = "stage-0.safetensors"
    with open(os.path.join(unfinished, name), "wb") as shard:
        shard.write(len(text).to_bytes(8, "little"))
        shard.write(text)
        for tensor in tensors.values():
            shard.write(_bytes_of(tensor))
        shard.flush()
        os.fsync(shard.fileno())
    size, checksum = _tenuto.describe_file(unfinished, name)
    layers = manifest["partition"][-1]["layer_end"]
    content = {
        **manifest,
        "partition": [{"layer_first": 0, "layer_end": layers}],
        "files": [{"name": name, "bytes": size, "crc32c": checksum}],
    }
    with open(os.path.join(unfinished, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(unfinished, target)
