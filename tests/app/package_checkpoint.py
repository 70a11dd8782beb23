"""Reads, converts and evaluates checkpoints for package_test.py; prints JSON.

convert RUN DCP OUT   its checkpoint to DCP, and from there to a checkpoint in OUT
evaluate JOB RUN      the loss of its newest checkpoint over the rows of package_model.py; and that
                      plain PyTorch reads what Pipeline.save() writes
"""
import json
import os
import shutil
import sys

import package_model
import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F

import tenuto


def check_same(one, other):
    assert one.keys() == other.keys(), (one.keys(), other.keys())
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def convert(run, folder, out):
    tenuto.to_dcp(run, folder)
    path = tenuto.from_dcp(folder, out)
    check_same(tenuto.load_checkpoint(run), tenuto.load_checkpoint(path))
    before, after = tenuto.load_optimizer(run), tenuto.load_optimizer(path)
    assert before.keys() == after.keys()
    for name, state in before.items():
        check_same(state, after[name])
    # What PyTorch itself reads there.
    state = tenuto.load_checkpoint(run)
    read = {"model": {name: torch.zeros_like(tensor) for name, tensor in state.items()}}
    dcp.load(read, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    check_same(read["model"], state)
    # A folder that knows nothing of Tenuto takes the settings of another checkpoint.
    foreign = folder + "-foreign"
    states = {"state": tenuto.load_optimizer(run)}
    dcp.save({"model": state, "optimizer": states},
             storage_writer=dcp.FileSystemWriter(foreign), no_dist=True)
    try:
        tenuto.from_dcp(foreign, out + "-foreign")
    except ValueError as error:
        assert "give like=CHECKPOINT" in str(error), error
    else:
        raise AssertionError("settings came from nowhere")
    check_same(tenuto.load_checkpoint(tenuto.from_dcp(foreign, out + "-foreign", like=run)), state)
    keys = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    return {"names": sorted(state), "keys": sorted(keys)}


def refusal(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return "nothing was refused"


def save(pipeline, run, whole):
    """Save the model, and read it into modules of other values by torch alone."""
    folder = run + "-saved"
    step = pipeline.save(folder, run)
    again = torch.nn.Sequential(*package_model.MODELS["rows"][0]())
    again.load_state_dict(torch.load(f"{folder}/model.pt", weights_only=True))
    check_same(again.state_dict(), whole.state_dict())
    return {"step": step, "files": os.listdir(folder)}


def evaluate(job, run):
    model, loss, data = package_model.MODELS["rows"]
    pipeline = tenuto.Pipeline(model, loss=loss, config=job)
    evaluated = pipeline.evaluate(data, run)
    whole = pipeline.load(run)
    inputs = torch.stack([data[row][0] for row in range(len(data))])
    targets = torch.stack([data[row][1] for row in range(len(data))])
    with torch.no_grad():
        plain = F.mse_loss(whole(inputs), targets).item()
    other = tenuto.Pipeline(package_model.MODELS["tied"][0], loss=loss, config=job)
    refused = refusal(lambda: other.load(run))
    copy = run + "-damaged"
    shutil.copytree(run, copy)
    with open(f"{copy}/checkpoint-6/stage-1.safetensors", "r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    damaged = refusal(lambda: tenuto.load_checkpoint(copy))
    return {"evaluated": evaluated, "plain": plain, "refused": refused, "damaged": damaged,
            "saved": save(pipeline, run, whole)}


print(json.dumps({"convert": convert, "evaluate": evaluate}[sys.argv[1]](*sys.argv[2:])))
