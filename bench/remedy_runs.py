"""Runs of real processes through one to three troubles, against what `tenuto simulate` promises.

Each scenario is drawn from its seed: stages, pipelines, layers, slow workers and slow links with
their begin and duration. The workers are paced, on the virtual clock, which hides late wake-ups.
Decisions still come later on a busy machine: run this where nothing else runs.
Usage: remedy_runs.py PATH_OF_TENUTO [--json] [--seed N] [--scenarios N]
"""
import argparse
import json
import pathlib
import random
import tempfile

from paced_runs import lines_of, tenuto, toml_of, total_period

STEPS = 160


def draw(seed):
    """The sections and faults of a job, and the troubles in words."""
    chance = random.Random(seed)
    stages, pipelines = chance.randint(2, 3), chance.randint(1, 2)
    sections = {
        "job": {"name": "scenario", "steps": STEPS, "checkpoint_every": 0, "validate_every": 0,
                "validate_micros": 0},
        "model": {"kind": "gpt", "layers": 2 * stages},
        "parallel": {"stages": stages, "pipelines": pipelines, "micros": chance.randint(4, 6),
                     "order": chance.choice(["1f1b", "zb-h1"])},
        "network": {"latency_ms": 0.5},
        "device": {"kind": "paced", "parameter_bytes": 4096, "forward_ms": [4.0],
                   "backward_input_ms": [4.0], "backward_weight_ms": [4.0]},
        "resilience": {"numerics": "reproducible", "layers": "adapt", "slow_workers": "adapt"},
    }
    faults, words = [], []
    for _ in range(chance.randint(1, 3)):
        first = chance.randint(5, STEPS // 2)
        end = min(STEPS, first + max(20, int(chance.lognormvariate(3.5, 0.8))))
        when = {"at_step": first, "until_step": end}
        if chance.random() < 0.5:
            worker, speed = chance.randrange(stages * pipelines), chance.choice([0.4, 0.5, 0.6])
            faults.append({"kind": "slow-worker", "worker": str(worker), "speed": speed, **when})
            words.append(f"worker {worker} at {speed}, steps {first} to {end - 1}")
        else:
            link, latency = chance.randrange(stages - 1), chance.choice([10.0, 20.0, 30.0])
            faults.append({"kind": "slow-link", "link": link, "latency_ms": latency, **when})
            words.append(f"link {link} +{latency:.0f} ms, steps {first} to {end - 1}")
    return sections, faults, words


def measure(program, seed, folder):
    sections, faults, words = draw(seed)
    sections["job"]["directory"] = str(folder)
    job = folder / "job.toml"
    job.write_text(toml_of(sections, faults))
    said = json.loads(tenuto(program, "simulate", job, "--iterations", STEPS, "--json"))
    tenuto(program, "train", job)
    metrics = lines_of(folder / "scenario" / "metrics.jsonl")
    took = total_period(metrics)
    events = lines_of(folder / "scenario" / "events.jsonl")
    decided = [next(one["name"] for one in event["alternatives"] if one["chosen"])
               for event in events if event.get("alternatives")]
    return {"seed": seed, "troubles": words, "promised_ms": said["with_remedies"]["total_ms"],
            "took_ms": took, "ratio": took / said["with_remedies"]["total_ms"],
            "unchanged_ms": said["total_ms"],
            "rehearsed": [part["remedy"] for part in said["with_remedies"]["parts"]],
            "decided": decided}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenarios", type=int, default=10)
    options = parser.parse_args()
    rows = []
    for seed in range(options.seed, options.seed + options.scenarios):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(options.program, seed, pathlib.Path(folder)))
        if not options.json:
            row = rows[-1]
            print(f"{row['seed']}: {'; '.join(row['troubles'])}: promised "
                  f"{row['promised_ms']:.0f} ms, took {row['took_ms']:.0f} ms "
                  f"(x {row['ratio']:.3f}), under the first plan {row['unchanged_ms']:.0f} ms",
                  flush=True)
    within = sum(abs(row["ratio"] - 1) <= 0.05 for row in rows)
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"within 5 % of the promise: {within} of {len(rows)}")


if __name__ == "__main__":
    main()
