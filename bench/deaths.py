"""Runs of 2 x 4 paced workers that are killed at random moments: how soon the others go on.

    bench/deaths.py TENUTO [--seconds 60] [--seed 1]

TENUTO is the program, with tenuto-worker beside it. Every run must end with all its steps and the
losses of the run before any death; then it prints, over all single deaths, how long after SIGKILL
the first of the others began the step again, by the clock of events.jsonl.
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

STEPS, STAGES, PIPELINES = 12, 4, 2


def job_text(folder):
    return f"""[job]
steps = {STEPS}
directory = "{folder}"
validate_every = 6
validate_micros = 2
[parallel]
stages = {STAGES}
pipelines = {PIPELINES}
[device]
kind = "paced"
forward_ms = [2.0]
backward_input_ms = [2.0]
backward_weight_ms = [2.0]
[resilience]
silence_seconds = 20.0
"""


def workers_of(parent):
    """The process of each worker, by number."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if "--parent" in words and words[words.index("--parent") + 1] == str(parent):
            found[int(words[words.index("--worker") + 1])] = int(entry.name)
    return found


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train(program, job, name, deaths, chance):
    """One run in which so many die; losses, and per death the time until somebody went on."""
    run = subprocess.Popen([program, "train", str(job), f"--job.name={name}"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    folder = job.parent / name
    while run.poll() is None and not lines_of(folder / "metrics.jsonl"):
        time.sleep(0.005)
    workers, killed = workers_of(run.pid), {}
    for _ in range(deaths):
        time.sleep(chance.random() * 0.25)
        victim = chance.randrange(STAGES * PIPELINES)
        peer = (victim + STAGES) % (STAGES * PIPELINES)
        if victim in killed or peer in killed or run.poll() is not None:
            continue
        killed[victim] = time.time()
        try:
            os.kill(workers[victim], 9)
        except ProcessLookupError:
            pass
    errors = run.communicate(timeout=120)[1]
    losses = [line["loss"] for line in lines_of(folder / "metrics.jsonl")]
    if run.returncode != 0 or len(losses) != STEPS:
        sys.exit(f"{name}: exit code {run.returncode} after {len(losses)} steps: {errors}")
    again = [line["time"] for line in lines_of(folder / "events.jsonl")
             if "ms after the news" in line["reason"]]
    alone = len(killed) == 1 and len(again) == 1
    return losses, len(again), again[0] - min(killed.values()) if alone else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.toml"
        job.write_text(job_text(folder))
        plain = train(options.program, job, "undisturbed", 0, chance)[0]
        times, recoveries, runs = [], 0, 0
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            runs += 1
            losses, again, took = train(options.program, job, f"run-{runs}",
                                        chance.choice([1, 1, 2, 3]), chance)
            for step, (found, wanted) in enumerate(zip(losses, plain)):
                if found is None or abs(found - wanted) > 1e-5 * abs(wanted):
                    sys.exit(f"run-{runs}, step {step}: loss {found}, undisturbed {wanted}")
            recoveries += again
            times += [] if took is None else [1000 * took]
    if not times:
        sys.exit("no single death was met: give it more --seconds")
    print(f"{runs} runs, {recoveries} recoveries, all steps done; of {len(times)} single deaths to "
          f"the step again: median {statistics.median(times):.0f} ms, most {max(times):.0f} ms")


if __name__ == "__main__":
    main()
