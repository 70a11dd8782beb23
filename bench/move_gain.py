"""What moves of layers away from a slow worker gain, against what the decision promised.

One worker has half its speed from step 8 on. Workers are paced, on the virtual clock, so the times
are those of the plans and not of this machine.
Usage: move_gain.py PATH_OF_TENUTO [--json]
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from paced_runs import lines_of, toml_of

STEPS = 90
LIMIT = 300
# stages, pipelines
SHAPES = [(3, 2), (2, 1), (4, 1)]


def measure(program, order, optimizer, stages, pipelines, folder):
    sections = {
        "job": {"name": "moves", "steps": STEPS, "checkpoint_every": 0, "validate_every": 0,
                "validate_micros": 0, "directory": str(folder)},
        "model": {"kind": "gpt", "layers": 8},
        "parallel": {"stages": stages, "pipelines": pipelines, "micros": 4, "order": order,
                     "optimizer": optimizer},
        "network": {"latency_ms": 0.5},
        "device": {"kind": "paced", "parameter_bytes": 4096, "forward_ms": [4.0],
                   "backward_input_ms": [4.0], "backward_weight_ms": [4.0]},
        "resilience": {"numerics": "reproducible", "layers": "adapt"},
    }
    job = folder / "job.toml"
    job.write_text(toml_of(sections, [{"kind": "slow-worker", "worker": "0.1", "speed": 0.5,
                                       "at_step": 8}]))
    done = subprocess.run([program, "train", str(job)], text=True, capture_output=True,
                          timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"{done.stderr}{done.stdout}")
    decided = next(event["alternatives"] for event in lines_of(folder / "moves/events.jsonl")
                   if event.get("alternatives"))
    before = next(one["step_ms"] for one in decided if one["name"] == "the present plan")
    chosen = next(one for one in decided if one["chosen"])
    periods = [line["period_ms"] for line in lines_of(folder / "moves/metrics.jsonl")[1:]]
    took = statistics.median(periods[8:12]) / statistics.median(periods[-30:])
    promised = before / chosen["step_ms"]
    return {"order": order, "optimizer": optimizer, "workers": f"{stages} x {pipelines}",
            "chosen": chosen["name"], "promised": promised, "took": took,
            "ratio": took / promised}


def main():
    rows = []
    for order in ("1f1b", "zb-h1"):
        for optimizer in ("barrier", "staggered"):
            for shape in SHAPES:
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(measure(sys.argv[1], order, optimizer, *shape,
                                        pathlib.Path(folder)))
                if "--json" not in sys.argv:
                    row = rows[-1]
                    print(f"{row['order']} {row['optimizer']} {row['workers']}: {row['chosen']}: "
                          f"promised x {row['promised']:.3f}, gained x {row['took']:.3f} "
                          f"({row['ratio']:.3f} of it)", flush=True)
    if "--json" in sys.argv:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
