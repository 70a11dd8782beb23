"""Runs of paced workers that are killed: how soon the others continue, and that no step is lost.

    bench/deaths.py TENUTO [--seconds 60] [--seed 1]
    bench/deaths.py TENUTO --each-op [--numerics fast]

TENUTO is the program, with tenuto-worker beside it. Without --each-op, workers of 2 x 4 are killed
at random moments. Every run must end with all its steps and the losses of a run without deaths. The
last line tells, over all single deaths, how long after SIGKILL the first of the others began the
step again, by the clock of events.jsonl. With --each-op there is one run for every op of a step of
each worker of 2 x 2, and the worker's process ends at this op. With reproducible sums the losses
must be the same to the last bit.
"""
import argparse
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

from paced_runs import Lost, begin, compare, finish, lines_of, toml_of, workers_of

STEPS, STAGES, PIPELINES = 12, 4, 2
LIMIT = 120           # seconds; no run takes so long
DIES_AT, SMALL = 3, 8  # with --each-op: the step of the death, the number of steps


def paced(milliseconds):
    return {"kind": "paced", "forward_ms": [milliseconds], "backward_input_ms": [milliseconds],
            "backward_weight_ms": [milliseconds]}


def job_text(folder):
    return toml_of({"job": {"steps": STEPS, "directory": str(folder), "validate_every": 6,
                            "validate_micros": 2},
                    "parallel": {"stages": STAGES, "pipelines": PIPELINES},
                    "device": paced(2.0), "resilience": {"silence_seconds": 20.0}})


def small_job_text(folder, numerics, faults):
    return toml_of({"job": {"steps": SMALL, "directory": str(folder), "validate_every": 4,
                            "validate_micros": 2},
                    "parallel": {"stages": 2, "pipelines": 2, "micros": 3},
                    "device": paced(1.0),
                    "resilience": {"silence_seconds": 20.0, "numerics": numerics}}, faults)


def kill_at_random(program, job, name, deaths, chance):
    """A run with up to `deaths` deaths; its losses, its recoveries, and after a single death the
    seconds until the first of the others went on."""
    run = begin(program, job, name)
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
    losses = finish(run, folder, STEPS, LIMIT)
    again = [line["time"] for line in lines_of(folder / "events.jsonl")
             if "ms after the coordinator heard" in line["reason"]]
    alone = len(killed) == 1 and len(again) == 1
    return losses, len(again), again[0] - min(killed.values()) if alone else None


def at_random_moments(options, folder):
    chance = random.Random(options.seed)
    job = folder / "job.toml"
    job.write_text(job_text(folder))
    plain = kill_at_random(options.program, job, "undisturbed", 0, chance)[0]
    times, recoveries, runs = [], 0, 0
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        runs += 1
        losses, again, took = kill_at_random(options.program, job, f"run-{runs}",
                                             chance.choice([1, 1, 2, 3]), chance)
        compare(losses, plain, 1e-5)
        recoveries += again
        times += [] if took is None else [1000 * took]
    if not times:
        raise Lost("no single death was met: give it more --seconds")
    print(f"{runs} runs, {recoveries} recoveries, all steps done; of {len(times)} single deaths to "
          f"the step again: median {statistics.median(times):.0f} ms, most {max(times):.0f} ms")


def at_each_op(options, folder):
    job = folder / "job.toml"

    def train(name, *faults):
        job.write_text(small_job_text(folder, options.numerics, faults))
        losses = finish(begin(options.program, job, name), folder / name, SMALL, LIMIT)
        events = [line["event"] for line in lines_of(folder / name / "events.jsonl")]
        return losses, events.count("death")

    plain, points = train("undisturbed")[0], []
    for worker in range(4):
        for op in range(1000):
            losses, deaths = train(f"kill-{worker}-{op}", {"kind": "kill", "worker": str(worker),
                                                           "at_step": DIES_AT, "at_op": op})
            compare(losses, plain, 0 if options.numerics == "reproducible" else 1e-5)
            if deaths == 0:  # it has no such op
                break
            if deaths != 1:
                raise Lost(f"worker {worker}, op {op}: {deaths} deaths")
            points.append((worker, op))
    counts = ", ".join(str(sum(of == worker for of, _ in points)) for worker in range(4))
    bits = " to the last bit" if options.numerics == "reproducible" else ""
    print(f"{len(points)} kills, one at each op of the workers ({counts}): all {SMALL} steps done "
          f"each time, losses the undisturbed ones{bits}, no process left")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each-op", action="store_true")
    parser.add_argument("--numerics", default="reproducible")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            (at_each_op if options.each_op else at_random_moments)(options, pathlib.Path(folder))
        except Lost as lost:
            sys.exit(str(lost))


if __name__ == "__main__":
    main()
