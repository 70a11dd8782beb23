"""What checkpoints cost a step: none, written before the step's commit, and asynchronous.

    bench/checkpoint_cost.py TENUTO [--turns 5] [--json]

A GPT trains on two processors of this machine, in two stages, with a checkpoint every tenth step.
The three kinds of runs take turns. A run counts with the mean of its steps from the fifth on, and
the result is the median of the ratios to the run without checkpoints of the same turn. It needs a
machine that does nothing else.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from paced_runs import lines_of, toml_of

STEPS, EVERY, WARM_UP = 65, 10, 5
LIMIT = 600  # seconds for a run
KINDS = {"none": {"checkpoint_every": 0},
         "synchronous": {"checkpoint_every": EVERY, "checkpoint_asynchronous": False},
         "asynchronous": {"checkpoint_every": EVERY, "checkpoint_asynchronous": True}}


def job_text(kind, folder):
    return toml_of({
        "job": {"name": kind, "steps": STEPS, "directory": str(folder), "validate_every": 0,
                "validate_micros": 0, **KINDS[kind]},
        "data": {"paths": [str(folder / "text")]},
        "model": {"layers": 6, "width": 256, "heads": 8, "sequence": 64},
        "parallel": {"stages": 2, "micros": 8, "micro_rows": 4}})


def train(program, kind, folder):
    """The mean of the run's steps in milliseconds, and the bytes of its newest checkpoint."""
    job = folder / "job.toml"
    job.write_text(job_text(kind, folder))
    done = subprocess.run([program, "train", str(job)], text=True, capture_output=True,
                          timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"{kind}: {done.stderr}{done.stdout}")
    metrics = lines_of(folder / kind / "metrics.jsonl")
    steps = [line["step_ms"] for line in metrics[WARM_UP:]]
    written = sum(file.stat().st_size for file in (folder / kind).rglob("*.safetensors"))
    return statistics.mean(steps), written


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.turns < 1:
        parser.error("--turns is a whole number of at least 1")
    turns = []
    for turn in range(options.turns):
        order = list(KINDS)
        order = order[turn % 3:] + order[:turn % 3]  # none of them is always the first
        times = {}
        for kind in order:
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                (folder / "text").write_text("".join(chr(32 + i * i % 90) for i in range(200_000)))
                times[kind], written = train(options.program, kind, folder)
                if kind != "none":
                    times["bytes"] = written
        turns.append(times)
        if not options.json:
            print(", ".join(f"{kind} {times[kind]:.1f} ms" for kind in KINDS), flush=True)
    cost = {kind: statistics.median(turn[kind] / turn["none"] - 1 for turn in turns)
            for kind in ("synchronous", "asynchronous")}
    if options.json:
        print(json.dumps({"turns": turns, "cost": cost, "checkpoint_every": EVERY}))
        return
    for kind, share in cost.items():
        print(f"{kind}: a step takes {100 * share:+.1f} % more, with a checkpoint of "
              f"{turns[-1]['bytes'] / 1e6:.0f} MB in all files every {EVERY} steps")


if __name__ == "__main__":
    main()
