"""What PyTorch modules cost beside the C++ model, and a split backward beside the fused one.

    ./run python bench/python_cost.py [--turns 5] [--tenuto PROGRAM] [--json]

One worker with one thread trains a GPT of four blocks: the C++ model of `tenuto train`, and the
same network as PyTorch modules under `tenuto launch`, with a fused and with a split backward, and
again with activation checkpoints around the blocks. The times are those of the ops in traced steps,
the median of all micro-batches of a run. Runs take turns; the table has medians over the turns, and
differences and ratios are medians of those of each turn. The last lines are about the smaller GPT
in two stages, alone and with a thread in each script that computes in Python all the time: the
times of a forward, and of a message from its beginning to its arrival. It needs a machine that does
nothing else.
"""
import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading

from data_parallel import VOCABULARY, loss_of, make_layers
from paced_runs import toml_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCKS, MICROS, STEPS, TRACED = 4, 8, 14, 8
LIMIT = 300  # seconds for a run
SEED = 1
# Width, heads, length of a row, rows of a micro-batch: ops of a few milliseconds, and longer ones.
SIZES = ((64, 2, 64, 2), (256, 8, 128, 2))
# Who computes, split backward, activation checkpoints.
KINDS = {"C++": ("train", False, False), "modules": ("launch", False, False),
         "modules, split": ("launch", True, False),
         "modules, checkpoints": ("launch", False, True),
         "modules, checkpoints, split": ("launch", True, True)}


BUSY = {"alone": False, "beside a busy thread": True}


def sections_of(size, split, folder, stages=1):
    """The settings that both kinds of models have."""
    return {"job": {"name": "run", "steps": STEPS, "directory": str(folder), "seed": SEED,
                    "checkpoint_every": 0, "validate_every": 0, "validate_micros": 0,
                    "trace_last": TRACED},
            "optimizer": {"clip": 0.0},
            "parallel": {"stages": stages, "pipelines": 1, "micros": MICROS, "micro_rows": size[3],
                         "split_backward": split}}


def with_checkpoints(block):
    """The block, whose forward runs again in the backward."""
    from torch.utils.checkpoint import checkpoint
    forward = block.forward
    block.forward = lambda x: checkpoint(forward, x, use_reentrant=False)
    return block


def script(case):
    """The script of `tenuto launch`."""
    import tenuto
    import torch
    width, heads, length, rows = case["size"]

    def layers():
        embedding, *blocks, head = make_layers(width, heads, BLOCKS, length)
        if case["checkpoints"]:
            blocks = [with_checkpoints(block) for block in blocks]
        return [embedding, *blocks, head]

    def batch(micro):
        generator = torch.Generator().manual_seed(micro)
        text = torch.randint(VOCABULARY, (rows, length + 1), generator=generator)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def compute():
        while True:
            pass

    if case.get("busy") and "TENUTO_DESCRIBE" not in os.environ:
        threading.Thread(target=compute, daemon=True).start()
    # Made before the steps: what a script's data cost is another question.
    made = [batch(micro) for micro in range(MICROS)]
    tenuto.Pipeline(layers, loss=loss_of, config=case["sections"]).fit(
        lambda _seed, _iteration, micro: made[micro])


def train(program, kind, size, folder):
    """The time of a forward and of a whole backward of a micro-batch, in ms."""
    command, split, checkpoints = KINDS[kind]
    sections = sections_of(size, split, folder)
    if command == "train":
        text, job = folder / "text", folder / "job.toml"
        draw = random.Random(SEED)
        text.write_bytes(bytes(draw.randrange(32, 127) for _ in range(100_000)))
        width, heads, length, _ = size
        job.write_text(toml_of({**sections, "data": {"paths": [str(text)]},
                                "model": {"layers": BLOCKS, "width": width, "heads": heads,
                                          "sequence": length}}))
        words = ["train", job]
    else:
        words = launch_words({"size": size, "checkpoints": checkpoints, "sections": sections})
    run_program([program, *words])
    return op_times(folder / "run")


def launch_words(case):
    return ["launch", "--python", sys.executable, __file__, "--case", json.dumps(case)]


def run_program(words):
    done = subprocess.run(words, text=True, capture_output=True, timeout=LIMIT,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}{done.stdout}")


def train_two(program, busy, folder):
    """The median of a forward, and the median and the longest of the messages, in ms."""
    case = {"size": SIZES[0], "checkpoints": False, "busy": busy,
            "sections": sections_of(SIZES[0], False, folder, stages=2)}
    run_program([program, *launch_words(case)])
    messages = []
    for path in (folder / "run").glob("trace-*.json"):
        for event in json.loads(path.read_text())["traceEvents"]:
            if event["ph"] == "X" and re.match(r"PP:\dRECV_", event.get("name", "")):
                messages.append(event["dur"] / 1e3)
    return op_times(folder / "run")[0], statistics.median(messages), max(messages)


def op_times(run):
    """The medians over the micro-batches of the traced steps."""
    forward, backward = [], {}
    for path in run.glob("trace-*.json"):
        for event in json.loads(path.read_text())["traceEvents"]:
            name = event.get("name", "")
            if event["ph"] != "X" or event.get("cat") or not name.startswith("PP:0"):
                continue
            kind, micro = name[4:5], event.get("args", {}).get("micro")
            if name[4:] == f"F{micro}":
                forward.append(event["dur"])
            elif kind in "BIW" and name[4:] == f"{kind}{micro}":
                key = (path.name, micro)
                backward[key] = backward.get(key, 0.0) + event["dur"]
    return statistics.median(forward) / 1e3, statistics.median(backward.values()) / 1e3


def rows_of(found, size):
    """The rows of a table: name, time in ms, and what it is compared with."""
    def against(kind, other, op, how):
        return statistics.median(how(one[op], two[op])
                                 for one, two in zip(found[kind], found[other]))
    name = f"width {size[0]}, {size[2] * size[3]} tokens"
    for op, word in enumerate(("forward", "backward")):
        yield {"size": name, "op": word,
               "cpp_ms": statistics.median(one[op] for one in found["C++"]),
               "modules_ms": statistics.median(one[op] for one in found["modules"]),
               "more_ms_a_block": against("modules", "C++", op, lambda x, y: (x - y) / BLOCKS),
               "over_cpp": against("modules", "C++", op, lambda x, y: x / y)}
    for kind in ("modules", "modules, checkpoints"):
        yield {"size": name, "op": f"split backward of {kind}",
               "modules_ms": statistics.median(one[1] for one in found[f"{kind}, split"]),
               "over_fused": against(f"{kind}, split", kind, 1, lambda x, y: x / y)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tenuto", default=str(ROOT / "build/release/src/app/tenuto"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.case is not None:
        script(chosen.case)
        return
    rows = []
    for size in SIZES:
        found = {kind: [] for kind in KINDS}
        for turn in range(chosen.turns):
            for kind in list(KINDS)[::1 if turn % 2 == 0 else -1]:
                with tempfile.TemporaryDirectory() as folder:
                    found[kind].append(train(chosen.tenuto, kind, size, pathlib.Path(folder)))
        rows += rows_of(found, size)
    beside = {how: [] for how in BUSY}
    for _ in range(chosen.turns):
        for how, busy in BUSY.items():
            with tempfile.TemporaryDirectory() as folder:
                beside[how].append(train_two(chosen.tenuto, busy, pathlib.Path(folder)))
    for how, each in beside.items():
        forward, message, longest = (statistics.median(one) for one in zip(*each))
        rows.append({"two_stages": how, "forward_ms": forward, "message_ms": message,
                     "longest_message_ms": longest})
    if chosen.json:
        print(json.dumps(rows))
        return
    print(f"{'size':24} {'op':42} {'C++ ms':>8} {'modules':>8} {'a block':>8} {'ratio':>7}")
    for row in rows:
        if "two_stages" in row:
            print(f"two stages {row['two_stages']}: a forward {row['forward_ms']:.3f} ms, "
                  f"a message {row['message_ms']:.3f} ms, "
                  f"the longest {row['longest_message_ms']:.3f} ms")
            continue
        cells = [f"{row[key]:8.3f}" if key in row else " " * 8
                 for key in ("cpp_ms", "modules_ms", "more_ms_a_block")]
        ratio = row.get("over_cpp", row.get("over_fused"))
        print(f"{row['size']:24} {row['op']:42} {' '.join(cells)} {ratio:7.3f}")


if __name__ == "__main__":
    main()
