"""What it costs the others that a worker joins their run.

    bench/join_cost.py TENUTO [--rounds 5] [--op-ms 12] [--state-mib 64]

TENUTO is the program, with tenuto-worker beside it. In each run of 4 stages x 2 pipelines, paced in
real time, one worker is killed and, some steps later, started again. The steps in which it receives
the state of its stage are compared with the steps before, which also lack this worker; its start-up
is in neither. Each run must end with every step once.
"""
import argparse
import pathlib
import re
import statistics
import sys
import tempfile

from paced_runs import Lost, begin, finish, lines_of, toml_of

STEPS, LIMIT = 90, 600
KILLED, STARTED = 5, 25
PLACE = re.compile(r"plan (\d+) .* is proposed: .* receives the state")
FORCE = re.compile(r"plan (\d+) .* is in force from step (\d+)")
KNOWS = re.compile(r"has the state of version (\d+)")


def job_text(folder, op_ms, state_mib):
    lengths = {f"{name}_ms": [op_ms] for name in ("forward", "backward_input", "backward_weight")}
    # A third of the state is parameters, the rest is optimizer state.
    return toml_of({"job": {"steps": STEPS, "directory": str(folder), "checkpoint_every": 0},
                    "parallel": {"stages": 4, "pipelines": 2, "micros": 4},
                    "device": {"kind": "paced", "clock": "real", **lengths,
                               "parameter_bytes": int(state_mib * (1 << 20) / 3)},
                    "resilience": {"silence_seconds": 20.0}},
                   faults=[{"kind": "kill", "worker": "1.2", "at_step": KILLED},
                           {"kind": "start", "worker": "1.2", "at_step": STARTED}])


def receiving_of(reasons):
    """The first step under the plan with the joiner, and the version at which it had all."""
    place = next((match[1] for match in map(PLACE.search, reasons) if match), None)
    first = next((int(match[2]) for match in map(FORCE.search, reasons)
                  if match and match[1] == place), None)
    last = next((int(match[1]) for match in map(KNOWS.search, reasons) if match), None)
    if first is None or last is None:
        raise Lost("nobody joined in time: make the state smaller")
    return first, last


def measure(program, job, name):
    """Median times of a step in ms without the worker, during the state transfer, and with it; the
    number of steps of the transfer."""
    run, folder = begin(program, job, name), job.parent / name
    finish(run, folder, STEPS, LIMIT)
    first, last = receiving_of([line["reason"] for line in lines_of(folder / "events.jsonl")])
    times = [line["step_ms"] for line in lines_of(folder / "metrics.jsonl")]
    parts = times[KILLED + 5:STARTED], times[first:last + 1], times[last + 8:]
    return [statistics.median(part) for part in parts] + [len(parts[1])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--op-ms", type=float, default=12)
    parser.add_argument("--state-mib", type=float, default=64)
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.toml"
        job.write_text(job_text(folder, options.op_ms, options.state_mib))
        for number in range(options.rounds):
            found.append(measure(options.program, job, f"run-{number}"))
            print("step without it {:.1f} ms, while it receives the state {:.1f} ms (in {} "
                  "steps), with it {:.1f} ms".format(*found[-1][:2], found[-1][3], found[-1][2]), flush=True)
    share = statistics.median(receiving / without - 1 for without, receiving, _, _ in found)
    print(f"a step while it receives the state takes {100 * share:+.1f} %, median of {len(found)} "
          "runs")


if __name__ == "__main__":
    try:
        main()
    except Lost as lost:
        sys.exit(str(lost))
