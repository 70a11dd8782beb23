"""Data-parallel training of a GPT: tenuto beside PyTorch's DistributedDataParallel with Gloo.

Each process has the whole model, one thread, and some micro-batches in each step. Both train the
same network with AdamW and the same clip; DDP adds up the gradients of all but the last micro-batch
without communication, as its users do. Rounds alternate; the table has the median of the tokens per
second, of the ratio, and of the processor time that all processes of a run take for 1,000 tokens,
tenuto's coordinator included.
Usage: data_parallel.py TENUTO [--processes 1,2,4] [--rounds 5] [--seconds 12] [--json]
TENUTO is the built program; this script needs a Python with torch.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from paced_runs import processor_seconds

LAYERS, WIDTH, HEADS, SEQUENCE, ROWS, MICROS, VOCABULARY = 4, 256, 4, 128, 8, 4, 256
WARM_UP = 5  # steps that are not counted
CLIP, RATE = 1.0, 3e-4
LIMIT = 300


def tokens_of_step(processes):
    return processes * MICROS * ROWS * SEQUENCE


# --- One process of DDP ------------------------------------------------------------------------


def make_layers(width=WIDTH, heads=HEADS, blocks=LAYERS, sequence=SEQUENCE):
    """The network that tenuto trains with these settings: embedding, blocks, head."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, width)
            self.position = nn.Parameter(torch.zeros(sequence, width))

        def forward(self, tokens):
            return self.embedding(tokens) + self.position

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.projection = nn.Linear(width, width)
            self.feed_norm = nn.LayerNorm(width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x):
            rows, length, _ = x.shape
            qkv = self.qkv(self.attention_norm(x))
            parts = qkv.view(rows, length, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.projection(mixed.transpose(1, 2).reshape(rows, length, width))
            return x + self.down(functional.gelu(self.up(self.feed_norm(x))))

    head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False))
    return [Embedding(), *[Block() for _ in range(blocks)], head]


def loss_of(logits, targets):
    from torch.nn import functional
    return functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def member(rank, processes, store, seconds):
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                            world_size=processes)
    model = nn.Sequential(*make_layers())
    parallel = nn.parallel.DistributedDataParallel(model) if processes > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95),
                                  weight_decay=0.1)
    data = torch.randint(0, VOCABULARY, (64, ROWS, SEQUENCE + 1))

    def backward(micro):
        batch = data[micro % len(data)]
        (loss_of(parallel(batch[:, :-1]), batch[:, 1:]) / MICROS).backward()

    steps, begun, used, on = 0, 0.0, 0.0, torch.ones(1)
    while on.item() > 0:
        if steps == WARM_UP:
            begun, used = time.monotonic(), time.process_time()
        for micro in range(MICROS):
            if micro + 1 < MICROS and processes > 1:
                with parallel.no_sync():
                    backward(steps * MICROS + micro)
            else:
                backward(steps * MICROS + micro)
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        steps += 1
        if steps % 4 == 0 and steps > WARM_UP:
            if rank == 0 and time.monotonic() - begun > seconds:
                on.zero_()
            dist.broadcast(on, 0)
    tokens = (steps - WARM_UP) * tokens_of_step(processes)
    print(json.dumps({"rank": rank, "tokens": tokens / (time.monotonic() - begun),
                      "processor": (time.process_time() - used) / tokens * 1000}))
    dist.destroy_process_group()


def run_ddp(folder, processes, seconds):
    store = folder / "store"
    store.unlink(missing_ok=True)
    started = [subprocess.Popen(
        [sys.executable, __file__, "--member", str(rank), "--processes", str(processes), "--store",
         str(store), "--seconds", str(seconds), "-"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(processes)]
    said = []
    for process in started:
        out, errors = process.communicate(timeout=LIMIT)
        if process.returncode:
            sys.exit(f"torch DDP: {errors}")
        said += [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    first = next(one for one in said if one["rank"] == 0)
    return first["tokens"], sum(one["processor"] for one in said)


# --- Tenuto ------------------------------------------------------------------------------------


def job_file(folder, processes):
    sections = {
        "job": {"name": "run", "steps": 1_000_000, "directory": str(folder), "checkpoint_every": 0,
                "validate_every": 0},
        "data": {"paths": [str(folder / "text")]},
        "model": {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "sequence": SEQUENCE,
                  "tied": False},
        "optimizer": {"learning_rate": RATE, "clip": CLIP},
        "parallel": {"stages": 1, "pipelines": processes, "micros": MICROS, "micro_rows": ROWS},
    }
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    job = folder / "job.toml"
    job.write_text("\n".join(lines) + "\n")
    return job


def run_tenuto(program, folder, processes, seconds):
    metrics = folder / "run" / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    process = subprocess.Popen([program, "train", str(job_file(folder, processes)), "--overwrite"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    marks = []  # of a look at the run: the number of steps, and the processor time so far
    end = time.monotonic() + LIMIT
    try:
        times = []
        while len(times) <= WARM_UP or times[-1] - times[WARM_UP - 1] < seconds:
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"tenuto: {process.communicate()[1]}")
            time.sleep(0.2)
            times = committed(metrics)
            if len(times) >= WARM_UP and (not marks or len(times) > marks[-1][0]):
                marks.append((len(times), processor_seconds(process.pid)))
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)
    took = times[-1] - times[WARM_UP - 1]
    (first, before), (last, after) = marks[0], marks[-1]
    tokens = tokens_of_step(processes)
    return ((len(times) - WARM_UP) * tokens / took,
            (after - before) / ((last - first) * tokens) * 1000)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("program", metavar="TENUTO")
    options.add_argument("--processes", default="1,2,4")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=12)
    options.add_argument("--json", action="store_true")
    options.add_argument("--member", type=int, help=argparse.SUPPRESS)
    options.add_argument("--store", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    counts = [int(count) for count in chosen.processes.split(",")]
    if chosen.member is not None:
        member(chosen.member, counts[0], chosen.store, chosen.seconds)
        return
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        draw = random.Random(1)
        (folder / "text").write_bytes(bytes(draw.randrange(32, 127) for _ in range(200_000)))
        for processes in counts:
            ours, theirs = [], []
            for turn in range(chosen.rounds):
                both = [lambda: ours.append(run_tenuto(chosen.program, folder, processes,
                                                       chosen.seconds)),
                        lambda: theirs.append(run_ddp(folder, processes, chosen.seconds))]
                for run in both if turn % 2 == 0 else reversed(both):
                    run()
            ratios = [one[0] / other[0] for one, other in zip(ours, theirs)]
            rows.append({"processes": processes, "ratio": statistics.median(ratios),
                         "ratios": ratios})
            for which, runs in (("tenuto", ours), ("ddp", theirs)):
                rows[-1][which] = statistics.median(one[0] for one in runs)
                rows[-1][f"{which}_processor"] = statistics.median(one[1] for one in runs)
    if chosen.json:
        print(json.dumps(rows))
        return
    print("           tokens per second    processor ms for 1,000 tokens")
    print("processes      tenuto       DDP        tenuto       DDP           ratio  (each round)")
    for row in rows:
        each = " ".join(f"{ratio:.3f}" for ratio in row["ratios"])
        print(f"{row['processes']:9}  {row['tenuto']:10.0f}{row['ddp']:10.0f}"
              f"{row['tenuto_processor'] * 1000:14.1f}{row['ddp_processor'] * 1000:10.1f}"
              f"{row['ratio']:16.3f}  ({each})")


if __name__ == "__main__":
    main()
