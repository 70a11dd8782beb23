"""Runs schedule CSVs in PyTorch's runtime, each rank a process on this CPU.

    torch_pipeline.py RANKS MICROS FORMAT:FILE...

FORMAT is compute_only or compute_comms. Prints one JSON line for each file: the mean loss and the
norm of all gradients, of the pipeline and of the plain model that its stages make up.
"""
import json
import re
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

WIDTH, ROWS = 8, 3


def stage_module(stage):
    torch.manual_seed(100 + stage)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())


def batch(micros):
    torch.manual_seed(7)
    return torch.randn(micros * ROWS, WIDTH), torch.randn(micros * ROWS, WIDTH)


def stages_of(path):
    """The stages of each rank, and how many there are."""
    with open(path) as file:
        rows = [sorted({int(s) for s in re.findall(r"(\d+)F\d", line)}) for line in file]
    return rows, 1 + max(max(row) for row in rows)


def plain(stages, micros):
    """Loss and squared norm of the gradients without a pipeline."""
    model = torch.nn.Sequential(*[stage_module(s) for s in range(stages)])
    inputs, targets = batch(micros)
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss.item(), sum(p.grad.double().square().sum().item() for p in model.parameters())


def stage_of(module, stage, count):
    """A stage with given shapes: PyTorch would need numpy to find them."""
    return PipelineStage(module, stage, count, torch.device("cpu"),
                         input_args=torch.empty(ROWS, WIDTH, requires_grad=stage > 0),
                         output_args=torch.empty(ROWS, WIDTH, requires_grad=True))


def run_one(rank, micros, form, path):
    rows, count = stages_of(path)
    modules = {s: stage_module(s) for s in rows[rank]}
    stages = [stage_of(modules[s], s, count) for s in rows[rank]]
    runtime = _PipelineScheduleRuntime(stages, micros, loss_fn=torch.nn.functional.mse_loss)
    runtime._load_csv(path, format=form)
    inputs, targets = batch(micros)
    losses = []
    arguments = (inputs,) if 0 in modules else ()
    target = targets if count - 1 in modules else None
    runtime.step(*arguments, target=target, losses=losses)
    total = torch.tensor([sum(loss.item() for loss in losses) / micros,
                          sum(p.grad.double().square().sum().item()
                              for module in modules.values() for p in module.parameters())],
                         dtype=torch.float64)
    dist.all_reduce(total)
    if rank == 0:
        loss, norm = plain(count, micros)
        print(json.dumps({"file": path, "format": form, "loss": total[0].item(),
                          "norm": total[1].item() ** 0.5, "plain_loss": loss,
                          "plain_norm": norm ** 0.5}), flush=True)


def run_rank(rank, ranks, micros, store, cases):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    for form, path in cases:
        run_one(rank, micros, form, path)
        dist.barrier()
    dist.destroy_process_group()


def main(ranks, micros, cases):
    with tempfile.TemporaryDirectory() as folder:
        # Forked ranks need not import torch again, which takes seconds each.
        processes.start_processes(run_rank, (ranks, micros, f"{folder}/store", cases),
                                  nprocs=ranks, start_method="fork")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]),
         [tuple(case.split(":", 1)) for case in sys.argv[3:]])
