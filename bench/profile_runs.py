"""Profile, plan, train: what a profile promises, and what a run takes.

For a GPT and for a model with a very unequal head: two profiles of the same job, and how far they
differ; then training on two workers with the planned cut of the layers and with the uniform one,
in turns, against the price of each. The two profiles are made at the same time, so as
many cores are busy as during training, and both profiles see the same load of the machine.
Usage: profile_runs.py PATH_OF_TENUTO [--json] [MODEL...]
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

# name, model settings: with a narrow model the head and the embedding of 256 bytes are small, with
# few blocks and long rows they are not.
MODELS = [
    ("gpt", {"layers": 4, "width": 128, "heads": 4, "sequence": 64}),
    ("unequal", {"layers": 3, "width": 64, "heads": 2, "sequence": 128}),
]
MICROS, ROWS, STEPS, TURNS = 8, 4, 10, 4
LIMIT = 300


def run(*words):
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True,
                          timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}{done.stdout}")
    return done.stdout


def run_at_once(*commands):
    started = [subprocess.Popen([str(word) for word in words], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE) for words in commands]
    for words, process in zip(commands, started):
        out, errors = process.communicate(timeout=LIMIT)
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: {errors}{out}")


def write_job(folder, model, text):
    settings = {
        "job": {"name": "profiled", "steps": STEPS, "directory": str(folder / "runs"),
                "checkpoint_every": 0, "validate_every": 0, "validate_micros": 2},
        "data": {"paths": [str(text)]}, "model": model,
        "parallel": {"stages": 2, "micros": MICROS, "micro_rows": ROWS},
    }
    lines = []
    for section, keys in settings.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    job = folder / "job.toml"
    job.write_text("\n".join(lines) + "\n")
    return job


def times_of(folder):
    model = json.loads((folder / "model.json").read_text())
    return [sum(layer[key][-1] for key in ("forward_ms", "backward_input_ms", "backward_weight_ms"))
            for layer in model["layers"]]


def write_uniform(folder, layers):
    """A plan of two stages with equal numbers of layers."""
    plan = folder / "uniform.json"
    first = (layers + 1) // 2
    return run_plan(folder, plan, first, layers - first)


def run_plan(folder, plan, *layers):
    run(TENUTO, "schedule", "convert", "--to", "json", "--out", plan, "--holders", "1,1",
        "--micros", MICROS, "--layers", ",".join(map(str, layers)))
    return plan


def price(folder, plan):
    said = json.loads(run(TENUTO, "simulate", plan, "--chain", folder / "model.json", "--cluster",
                          folder / "cluster.json", "--optimizer", "in-turn", "--json"))
    return said["period_ms"]


def step_of(job, plan, name):
    run(TENUTO, "train", job, f"--parallel.plan={plan}", f"--job.name={name}", "--overwrite")
    metrics = (job.parent / "runs" / name / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step_ms"] for line in metrics[3:]]


def measure(name, model, root, text):
    folder = root / name
    folder.mkdir()
    job = write_job(folder, model, text)
    lines = [line for line in job.read_text().splitlines()
             if line.split(" ")[0] not in ("stages", "micros")]
    free = folder / "free.toml"  # what the plan says is left out
    free.write_text("\n".join(lines) + "\n")
    turns = ("one", "two")
    run_at_once(*([TENUTO, "profile", job, "--out", folder / turn, "--seconds", "10"]
                  for turn in turns))
    profiles = [times_of(folder / turn) for turn in turns]
    whole = [sum(profile) for profile in profiles]
    one = folder / "one"
    planned = folder / "planned.json"
    run(TENUTO, "plan", "--chain", one / "model.json", "--cluster", one / "cluster.json",
        "--micros", MICROS, "--plan", planned)
    plans = {"planned": planned, "uniform": write_uniform(folder, len(profiles[0]))}
    steps = {which: [] for which in plans}
    for _ in range(TURNS):
        for which, plan in plans.items():
            steps[which] += step_of(free, plan, which)
    result = {"model": name, "layers": len(profiles[0]),
              "profiles_differ": abs(whole[1] / whole[0] - 1),
              "a_layer_differs": max(abs(b / a - 1) for a, b in zip(*profiles))}
    for which, plan in plans.items():
        result[which] = {"promised_ms": price(one, plan),
                         "step_ms": statistics.median(steps[which])}
        result[which]["ratio"] = result[which]["step_ms"] / result[which]["promised_ms"]
    for key in ("promised_ms", "step_ms"):
        result[f"gain_{key[:-3]}"] = result["uniform"][key] / result["planned"][key]
    return result


def main():
    asked = [word for word in sys.argv[2:] if word != "--json"]
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        text = root / "text.txt"
        text.write_text("".join(f"{i} times {i % 13} is {i * (i % 13)}\n" for i in range(20000)))
        results = [measure(model, settings, root, text) for model, settings in MODELS
                   if not asked or model in asked]
    if "--json" in sys.argv:
        print(json.dumps(results))
        return
    for result in results:
        print(f"{result['model']}: {result['layers']} layers; two profiles differ by "
              f"{100 * result['profiles_differ']:.1f} % in sum, by "
              f"{100 * result['a_layer_differs']:.1f} % in a layer")
        for which in ("planned", "uniform"):
            row = result[which]
            print(f"  {which:8} promised {row['promised_ms']:8.2f} ms, trained in "
                  f"{row['step_ms']:8.2f} ms (x {row['ratio']:.3f})")
        print(f"  gain     promised x {result['gain_promised']:.3f}, trained x "
              f"{result['gain_step']:.3f}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    TENUTO = sys.argv[1]
    main()
