"""Run after run of paced workers under chaos: nothing may be lost, whatever happens.

    bench/soak.py TENUTO [--minutes 20] [--seed 1] [--keep FOLDER]

TENUTO is the program, with tenuto-worker beside it. Each run has the faults that its own seed draws
([[fault]] kind = "chaos" in docs/formats.md): workers killed, stopped, cut off and started again,
slow workers and links, broken connections, wrong clocks, killed coordinators. It must end with exit
code 0, every step once, the losses of the undisturbed run to the last bit, the checkpoint of its
last step, and no process left. Anything else ends the soak with the seed; with --keep the folder of
every run stays.
"""
import argparse
import collections
import pathlib
import sys
import tempfile
import time

from paced_runs import Lost, begin, compare, finish, lines_of, toml_of

STEPS, STAGES, PIPELINES = 200, 2, 3
LIMIT = 600  # seconds; no run takes so long


def job_text(folder, seed):
    faults = [] if seed is None else [{"kind": "chaos", "seed": seed, "every": 10, "at_step": 5}]
    return toml_of({"job": {"steps": STEPS, "directory": str(folder), "checkpoint_every": 40,
                            "validate_every": 50, "validate_micros": 3},
                    "parallel": {"stages": STAGES, "pipelines": PIPELINES, "micros": 3},
                    "device": {"kind": "paced", "forward_ms": [5.0], "backward_input_ms": [5.0],
                               "backward_weight_ms": [5.0]},
                    "resilience": {"numerics": "reproducible"}}, faults)


def train(program, folder, seed):
    """One run: its losses, its faults by kind, and its events by kind."""
    name = "undisturbed" if seed is None else f"seed-{seed}"
    job = folder / f"{name}.toml"
    job.write_text(job_text(folder, seed))
    losses = finish(begin(program, job, name), folder / name, STEPS, LIMIT)
    if not (folder / name / f"checkpoint-{STEPS}" / "manifest.json").exists():
        raise Lost("no checkpoint of the last step")
    events = lines_of(folder / name / "events.jsonl")
    told = collections.Counter(line["event"] for line in events)
    told["joined"] = sum("has the state of version" in line["reason"] for line in events)
    kinds = collections.Counter()
    for line in (folder / name / "config.toml").read_text().split("[[fault]]")[1:]:
        kinds[line.split('kind = "')[1].split('"')[0]] += 1
    return losses, kinds, told


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--keep", help="where runs are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        plain = train(options.program, folder, None)[0]
        faults, told, runs = collections.Counter(), collections.Counter(), 0
        seed, end = options.seed, time.monotonic() + 60 * options.minutes
        while time.monotonic() < end:
            try:
                losses, kinds, events = train(options.program, folder, seed)
                compare(losses, plain)
            except Lost as lost:
                sys.exit(f"seed {seed}: {lost}")
            faults += kinds
            told += events
            print(f"seed {seed}: {sum(kinds.values())} faults, {events['death']} deaths, "
                  f"{events['joined']} joins, {events['coordinator']} new coordinators", flush=True)
            runs += 1
            seed += 1
    print(f"{runs} runs of {STEPS} steps, {PIPELINES} x {STAGES} workers: nothing lost")
    print("drawn: " + ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items())))
    print(f"told: {told['death']} deaths, {told['joined']} joins, {told['coordinator']} "
          f"coordinators replaced, {told['decision']} decisions")


if __name__ == "__main__":
    main()
