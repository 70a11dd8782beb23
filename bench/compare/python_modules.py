"""The same PyTorch modules, trained by Tenuto and by torch.distributed.pipelining.

    ./run python bench/compare/python_modules.py [--quick] [--json]

A GPT of four blocks as 1 x 4 pipeline, and as 2 pipelines x 2 stages (on PyTorch's side each stage
is wrapped in DistributedDataParallel). Both systems use real processes with one thread each, Gloo
or Tenuto's wire over the loopback, AdamW, no clipping, no checkpoints; each process is pinned to a
core in turn. The columns have the time of a step in ms, and the processor time that all processes
of a run take for one micro-batch, in ms, Tenuto's coordinator included. Medians; ratios are medians
of runs that took turns.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from common import (LIMIT, WORKER_ENVIRONMENT, LineProcess, Lost, ask_all, free_port, median,
                    parser_of, pin_workers, ratios, read_flags, run_main, settings_of, show, stop,
                    versions, whole_lines)
import data_parallel  # found through common
from data_parallel import RATE, SEQUENCE, VOCABULARY, WIDTH, loss_of
from paced_runs import processor_seconds
from torch_schedules import join, make_schedule, make_stage

ROWS, SEED = 2, 1
WARM_UP = 3  # steps that are not counted
# Pipelines, stages, micro-batches of a pipeline, order.
CASES = ((1, 4, 8, "1f1b"), (1, 4, 8, "zb-h1"), (2, 2, 4, "1f1b"))


def make_layers():
    """Four layers of the same network: the first has the embedding, the last one the head."""
    from torch import nn
    embedding, first, *blocks, last, head = data_parallel.make_layers()
    return [nn.Sequential(embedding, first), *blocks, nn.Sequential(last, head)]


def tokens_of(iteration, micro):
    """The inputs and targets of a micro-batch."""
    import torch
    generator = torch.Generator().manual_seed((SEED * 1009 + iteration) * 1009 + micro)
    batch = torch.randint(VOCABULARY, (ROWS, SEQUENCE + 1), generator=generator)
    return batch[:, :-1].contiguous(), batch[:, 1:].contiguous()


# --- Processes -----------------------------------------------------------------------------------


def torch_member(own, port, case):
    """A worker of torch.distributed.pipelining. Each line of its input is a number of steps; it
    answers with the moments of their ends, and its processor time in between, in seconds."""
    import torch
    import torch.distributed as distributed
    from torch import nn
    pipelines, stages, micros, order = case
    join(own, pipelines * stages, port)
    pipeline, stage = divmod(own, stages)
    lines = [distributed.new_group([p * stages + s for s in range(stages)])
             for p in range(pipelines)]
    holders = [distributed.new_group([p * stages + s for p in range(pipelines)])
               for s in range(stages)]
    torch.manual_seed(SEED)
    layers = make_layers()
    count = len(layers) // stages
    module = nn.Sequential(*layers[stage * count:(stage + 1) * count])
    if pipelines > 1:
        module = nn.parallel.DistributedDataParallel(module, process_group=holders[stage])
    tokens = tokens_of(0, 0)[0]
    hidden = [torch.zeros(ROWS, SEQUENCE, WIDTH) for _ in range(2)]
    shapes = (tokens if stage == 0 else hidden[0],
              torch.zeros(ROWS, SEQUENCE, VOCABULARY) if stage == stages - 1 else hidden[1])
    schedule = make_schedule(order, [make_stage(module, stage, stages, shapes,
                                                group=lines[pipeline])], micros, loss_of)
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, betas=(0.9, 0.95),
                                  weight_decay=0.1)
    print("ready", flush=True)
    for line in sys.stdin:
        ends, used = [], 0.0
        for step in range(WARM_UP + int(line)):
            if step == WARM_UP:
                used = time.process_time()
            batch = [tokens_of(step, pipeline * micros + micro) for micro in range(micros)]
            inputs = [torch.cat([one for one, _ in batch])] if stage == 0 else []
            more = {"target": torch.cat([one for _, one in batch])} if stage == stages - 1 else {}
            optimizer.zero_grad()
            schedule.step(*inputs, return_outputs=False, **more)
            optimizer.step()
            ends.append(time.monotonic())
        print(json.dumps([ends[WARM_UP - 1:], time.process_time() - used]), flush=True)
        distributed.barrier()


def tenuto_script(case, folder):
    """The script of `tenuto launch`."""
    import tenuto
    pipelines, stages, micros, order = case
    config = {
        "job": {"name": "run", "steps": 1_000_000, "directory": folder, "seed": SEED,
                "checkpoint_every": 0, "validate_every": 0},
        "optimizer": {"learning_rate": RATE, "clip": 0.0, "schedule": "constant",
                      "warm_up_steps": 0},
        "parallel": {"stages": stages, "pipelines": pipelines, "micros": micros,
                     "micro_rows": ROWS, "order": order},
        "network": {"connect_seconds": float(LIMIT)},
    }
    tenuto.Pipeline(make_layers, loss=loss_of, config=config).fit(
        lambda _, iteration, micro: tokens_of(iteration, micro))


# --- Runs ----------------------------------------------------------------------------------------


def run_torch(flags, case):
    """The time of a step and the processor time of a micro-batch, in ms."""
    pipelines, stages, micros, _ = case
    port, processes = free_port(), []
    try:
        for worker in range(pipelines * stages):
            processes.append(LineProcess([sys.executable, __file__, "--member", worker, "--port",
                                          port, "--case", json.dumps(case)], worker))
        for process in processes:
            if process.read() != "ready":
                raise Lost(f"{process.name} does not begin: {process.told()}")
        answers = [json.loads(answer) for answer in ask_all(processes, str(flags.steps))]
    finally:
        for process in processes:
            process.end()
    ends = answers[0][0]
    used = sum(answer[1] for answer in answers)
    return (1000 * median([later - one for one, later in zip(ends, ends[1:])]),
            1000 * used / (flags.steps * micros * pipelines))


def run_tenuto(flags, case):
    """The same, of `tenuto launch`."""
    pipelines, _, micros, _ = case
    with tempfile.TemporaryDirectory(prefix="tenuto-compare-") as folder:
        metrics, errors = pathlib.Path(folder) / "run" / "metrics.jsonl", pathlib.Path(folder) / "e"
        with errors.open("w") as file:
            run = subprocess.Popen(
                [flags.tenuto, "launch", "--python", sys.executable, __file__, "--case",
                 json.dumps(case), "--folder", folder], stdout=subprocess.DEVNULL, stderr=file,
                start_new_session=True, env={**os.environ, **WORKER_ENVIRONMENT})
        marks = []  # of a look at the run: the number of steps, and the processor time so far
        try:
            end = time.monotonic() + LIMIT
            while not marks or marks[-1][0] < WARM_UP + flags.steps:
                if run.poll() is not None or time.monotonic() > end:
                    raise Lost(f"tenuto launch: {errors.read_text()[-2000:]}")
                time.sleep(0.1)
                done = len(whole_lines(metrics))
                if done >= WARM_UP and (not marks or done > marks[-1][0]):
                    if not marks:
                        pin_workers(run.pid)
                    marks.append((done, processor_seconds(run.pid)))
        finally:
            stop(run)
        times = [line["step_ms"] for line in whole_lines(metrics)]
    (first, before), (last, after) = marks[0], marks[-1]
    return (median(times[WARM_UP:]),
            1000 * (after - before) / ((last - first) * micros * pipelines))


def compare(flags):
    for case in CASES[1:2] if flags.quick else CASES:
        own, other = [], []
        for turn in range(flags.repeats):
            both = [lambda: own.append(run_tenuto(flags, case)),
                    lambda: other.append(run_torch(flags, case))]
            for run in both if turn % 2 == 0 else reversed(both):
                run()
        row = [f"{case[0]} x {case[1]}", case[3]]
        for value in range(2):
            ours, theirs = [run[value] for run in own], [run[value] for run in other]
            row += [median(ours), median(theirs), ratios(ours, theirs)]
        yield row


def is_part_of_a_run():
    """Runs this process's part, if a comparison has started it, and says whether it has."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--member", type=int)
    parser.add_argument("--port", type=int)
    parser.add_argument("--case", type=json.loads)
    parser.add_argument("--folder")
    part, _ = parser.parse_known_args()
    if part.case is None:
        return False
    if part.folder is not None:
        tenuto_script(part.case, part.folder)
    else:
        torch_member(part.member, part.port, part.case)
    return True


def main():
    if is_part_of_a_run():
        return
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=40, help="measured steps of a run")
    flags = read_flags(parser, 5)
    if flags.steps < 1:
        parser.error("--steps is at least 1")
    flags.steps = min(flags.steps, 10) if flags.quick else flags.steps
    rows = list(compare(flags))
    settings = settings_of(flags, **versions("torch"), steps=flags.steps, rows=ROWS,
                           sequence=SEQUENCE, pinned="each worker to a core in turn",
                           backend="Gloo on the loopback")
    heads = ["grid", "order", "step: tenuto", "torch", "ratio", "processor: tenuto", "torch's",
             "ratio'"]
    show(flags, settings, heads, rows)


if __name__ == "__main__":
    run_main(main)
