"""The time of examples/bad-day.toml in real processes, against its promise and its lower bound.

    bench/bad_day.py TENUTO [--runs 3] [--json]

TENUTO is the program, with tenuto-worker-paced beside it. The job of the example trains with paced
workers on the real clock. Their ops take the lengths that its [device] gives; all else (processes,
messages, detection, decisions, a death, a new worker) is real. The periods of all steps are added
up, each from the last weight gradient of the step before to that of the step, so the time until the
others have run the rest of a dead worker's step counts. It needs a machine that does nothing else.

The promise and the lower bound are those of `tenuto simulate`: the plans that a run would have, and
for the steps under each of them a bound on every order and all routes of micro-batches among the
live workers (adapt/mesh_bound.h).
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from paced_runs import lines_of, tenuto, total_period

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "bad-day.toml"


def train(program, folder, steps):
    """The milliseconds of all iterations of a run, and what it did about its troubles."""
    tenuto(program, "train", EXAMPLE, "--device.kind=paced", "--device.clock=real",
           f"--job.directory={folder}")
    run = folder / "bad-day"
    metrics = lines_of(run / "metrics.jsonl")
    if [line["step"] for line in metrics] != list(range(steps)):
        sys.exit(f"expected the metrics of {steps} steps, found those of {len(metrics)}")
    events = [event["event"] for event in lines_of(run / "events.jsonl")]
    if "resume" in events or "join" not in events:
        sys.exit(f"the run was begun again, or nobody joined it: {', '.join(events)}")
    took = total_period(metrics)
    return took, {kind: events.count(kind) for kind in ("detection", "decision", "death", "join")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs is a whole number of at least 1")
    steps = next(int(line.split("=")[1]) for line in EXAMPLE.read_text().splitlines()
                 if line.startswith("steps"))
    said = json.loads(tenuto(options.program, "simulate", EXAMPLE, "--iterations", steps,
                             "--json"))["with_remedies"]
    promised, bound = said["total_ms"], said["lower_bound_ms"]
    runs = []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            took, events = train(options.program, pathlib.Path(folder), steps)
        runs.append({"took_ms": took, "of_bound": took / bound, "of_promise": took / promised,
                     **events})
        if not options.json:
            print(f"{took:.0f} ms, {took / bound:.3f}x of the lower bound, "
                  f"{took / promised:.3f}x of the promise; "
                  + ", ".join(f"{kind}: {count}" for kind, count in events.items()), flush=True)
    median = statistics.median(run["of_bound"] for run in runs)
    if options.json:
        print(json.dumps({"promised_ms": promised, "lower_bound_ms": bound, "runs": runs,
                          "median_of_bound": median}))
        return
    print(f"promised {promised:.0f} ms, lower bound {bound:.0f} ms: median {median:.3f}x of it")


if __name__ == "__main__":
    main()
