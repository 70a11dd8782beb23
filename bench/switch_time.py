"""How soon another sync mode is in force in a run of `tenuto train`.

    bench/switch_time.py TENUTO [--requests 40] [--seed 1] [--rows 2] [--json]

TENUTO is the program, with tenuto-worker beside it. Four replicas and two servers train a small GPT
on the CPU. The script asks for one mode after another, drawn by the seed, at random moments of an
iteration. The table has, in ms and in median iterations of the run,

- from the moment when `tenuto inject` is started, and from the moment when the coordinator has
  heard it (the event `decision`),
- to the moment when the decider has changed the mode (the event `mode`), and to the commit of the
  first update of that mode (the event `update`);
- and how many of the requests were within two median iterations.

`--rows` makes iterations longer or shorter. The script fails if a mode does not come into force.
"""
import argparse
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

from paced_runs import Lost
from served_runs import ServedRun, end_on_signals

REPLICAS, SERVERS, MICROS = 4, 2, 4
MODES = ["synchronous", "asynchronous", "x:2", "grace:3", "groups:0,1/2,3", "ring:2:0,1,0,1",
         "backup:3", "rebalanced"]
WARM_UP = 10     # steps before the first request
LIMIT = 120      # seconds; nothing that is waited for takes so long
WITHIN = 2       # median iterations
FROM, TO = ("sent", "heard"), ("mode", "update")


def sections_of(rows, text):
    return {
        "job": {"steps": 1_000_000, "checkpoint_every": 0, "validate_every": 0,
                "validate_micros": 0},
        "data": {"paths": [str(text)]},
        "model": {"layers": 2, "width": 128, "heads": 4, "sequence": 64},
        "optimizer": {"learning_rate": 1e-3, "clip": 0.0},
        "parallel": {"pipelines": REPLICAS, "micros": MICROS, "micro_rows": rows},
        "sync": {"architecture": "servers", "servers": SERVERS, "mode": MODES[0]},
    }


def sequence_of(chance, count):
    """Modes of which none is that before it; the run begins with the first one of MODES."""
    modes, before = [], MODES[0]
    for _ in range(count):
        before = chance.choice([mode for mode in MODES if mode != before])
        modes.append(before)
    return modes


def moments_of(events, mode):
    """When the coordinator heard of the mode, when it was in force, and when its first update was
    committed, in seconds since 1970: as many of these as there are, in this order."""
    wanted = [("decision", f"requested: sync.mode={mode}"), ("mode", f"sync mode {mode}"),
              ("update", f"the first update in sync mode {mode}")]
    moments = []
    for event in events:
        if len(moments) == len(wanted):
            break
        kind, words = wanted[len(moments)]
        if event["event"] == kind and event["reason"].startswith(words):
            moments.append(event["time"])
    return moments


def request(run, mode):
    """Asks for the mode and waits for its first update; the moment of each."""
    before = len(run.events())
    sent = time.time()
    run.inject(f"sync.mode={mode}", LIMIT)
    found = []

    def is_done():
        found[:] = moments_of(run.events()[before:], mode)
        return len(found) == 3

    run.wait_until(is_done, LIMIT, f"the first update in sync mode {mode}")
    return {"asked": mode, "sent": sent, "heard": found[0], "mode": found[1], "update": found[2]}


def median_iteration(run):
    """In seconds. A step has as many micro-batches as one iteration of all replicas."""
    return statistics.median(line["step_ms"] for line in run.metrics()[WARM_UP // 2:]) / 1000


def measure(program, folder, options):
    """What was asked for, with its moments; and the median iteration in seconds."""
    chance = random.Random(options.seed)
    text = folder / "text"
    text.write_bytes(bytes(chance.randrange(32, 127) for _ in range(200_000)))
    with ServedRun(program, folder, "switch", sections_of(options.rows, text)) as run:
        run.wait_until(lambda: len(run.metrics()) >= WARM_UP, LIMIT, f"step {WARM_UP}")
        found = []
        for mode in sequence_of(chance, options.requests):
            found.append(request(run, mode))
            time.sleep(chance.random() * median_iteration(run))
        iteration = median_iteration(run)
        run.interrupt(LIMIT)
    return found, iteration


def rows_of(found, iteration):
    rows = []
    for begin in FROM:
        for end in TO:
            times = [one[end] - one[begin] for one in found]
            rows.append({"from": begin, "to": end, "median_ms": 1000 * statistics.median(times),
                         "worst_ms": 1000 * max(times),
                         "median_iterations": statistics.median(times) / iteration,
                         "worst_iterations": max(times) / iteration,
                         "within": sum(time <= WITHIN * iteration for time in times)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", metavar="TENUTO")
    parser.add_argument("--requests", type=int, default=40, help="changes of the mode (40)")
    parser.add_argument("--seed", type=int, default=1, help="of the modes and the moments (1)")
    parser.add_argument("--rows", type=int, default=2, help="rows of a micro-batch (2)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    if options.requests < 1 or options.rows < 1:
        parser.error("expected --requests and --rows of at least 1")
    end_on_signals()
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as folder:
        found, iteration = measure(options.program, pathlib.Path(folder), options)
    rows = rows_of(found, iteration)
    if options.json:
        print(json.dumps({"iteration_ms": 1000 * iteration, "rows": rows, "requests": found}))
        return
    print(f"{len(found)} changes of the sync mode; median iteration {1000 * iteration:.1f} ms")
    print("from    to      median ms  worst ms  median iterations  worst iterations  "
          f"within {WITHIN} iterations")
    for row in rows:
        print(f"{row['from']:6}  {row['to']:6}  {row['median_ms']:9.1f}  {row['worst_ms']:8.1f}  "
              f"{row['median_iterations']:17.2f}  {row['worst_iterations']:16.2f}  "
              f"{row['within']} of {len(found)}")


if __name__ == "__main__":
    try:
        main()
    except Lost as lost:
        sys.exit(f"switch_time.py: {lost}")
