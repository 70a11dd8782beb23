"""What a worker's death costs: how much longer the step that it hits is than the later steps.

    bench/death_cost.py TENUTO [--kills 60] [--op-ms 50] [--at-once 4] [--seed 1]

TENUTO is the program, with tenuto-worker beside it. Each run has 4 stages x 2 pipelines of paced
workers, one of which is killed at a random moment of a step. The cost is the period of the step
that is hit, less that of the later steps, over the period of a run without deaths. Periods are on
the devices' virtual clock (period_ms of metrics.jsonl) and include the time until the others
continue. Every run must end with the losses of a run without deaths. Runs go in parallel: their ops
take no CPU time.
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import statistics
import sys
import tempfile
import time

from paced_runs import Lost, begin, compare, finish, lines_of, toml_of, workers_of

STEPS, STAGES, PIPELINES, MICROS, LIMIT = 8, 4, 2, 16, 600
HIT = re.compile(r"step (\d+) has begun .*without .*, ([0-9.]+) ms after the coordinator heard")


def job_text(folder, op_ms):
    lengths = {f"{name}_ms": [op_ms] for name in ("forward", "backward_input", "backward_weight")}
    return toml_of({"job": {"steps": STEPS, "directory": str(folder)},
                    "parallel": {"stages": STAGES, "pipelines": PIPELINES, "micros": MICROS,
                                 "order": "zb-h1", "split_backward": True},
                    "device": {"kind": "paced", **lengths},
                    "resilience": {"silence_seconds": 20.0}})


def train(program, job, name, wait=None, victim=0):
    """A run in which `victim` is killed `wait` seconds after the third step: its losses, its
    periods in ms, the step that was hit, the ms until the others went on, and whether they ran
    only what was left of that step."""
    run, folder = begin(program, job, name), job.parent / name
    while run.poll() is None and len(lines_of(folder / "metrics.jsonl")) < 3:
        time.sleep(0.01)
    if wait is not None:
        time.sleep(wait)
        try:
            os.kill(workers_of(run.pid)[victim], 9)
        except (KeyError, ProcessLookupError):
            pass
    losses = finish(run, folder, STEPS, LIMIT)
    reasons = [line["reason"] for line in lines_of(folder / "events.jsonl")]
    hits = [match for match in map(HIT.search, reasons) if match]
    periods = [line.get("period_ms") for line in lines_of(folder / "metrics.jsonl")]
    resumed = any(re.search(r"step \d+ continues without", reason) for reason in reasons)
    hit = (int(hits[0][1]), float(hits[0][2]), resumed) if hits else (None, None, None)
    return losses, periods, *hit


def cost_of(periods, hit, period):
    """The cost of a death in steps; None if a period is missing."""
    after = [each for each in periods[hit + 2:] if each is not None]
    if periods[hit] is None or not after:
        return None
    return (periods[hit] - statistics.median(after)) / period


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--op-ms", type=float, default=50)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.toml"
        job.write_text(job_text(folder, options.op_ms))
        plain, periods, *_ = train(options.program, job, "undisturbed")
        period = statistics.median(each for each in periods if each is not None)
        costs, pauses, resumed = [], [], 0
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            runs = [pool.submit(train, options.program, job, f"run-{i}",
                                chance.random() * period / 1000,
                                chance.randrange(STAGES * PIPELINES))
                    for i in range(options.kills)]
            for run in runs:
                losses, periods, hit, pause, goes_on = run.result()
                compare(losses, plain, 1e-5)
                cost = None if hit is None else cost_of(periods, hit, period)
                if cost is None:
                    continue
                costs.append(cost)
                pauses.append(pause)
                resumed += goes_on
    if not costs:
        sys.exit("no death was met")
    print(f"{len(costs)} deaths, {resumed} of them resumed; a step takes {period:.0f} ms, the "
          f"others go on after {statistics.median(pauses):.0f} ms; a death costs mean "
          f"{statistics.mean(costs):.3f}, median {statistics.median(costs):.3f}, most "
          f"{max(costs):.3f} of a step")


if __name__ == "__main__":
    try:
        main()
    except Lost as lost:
        sys.exit(str(lost))
