"""Profile, plan, train: what a profile promises, and what a run takes.

For a GPT and for a model with a very unequal head: two profiles of the same job, and how far they
differ; then training on two workers with the planned cut of the layers and with the uniform one,
against the price of each. The two profiles are made at the same time, so as many cores are busy as
during training, and both profiles see the same load of the machine. All this is done in several
rounds. Each ratio is of one round, because the speed of a virtual machine changes from minute to
minute; the medians of the rounds are printed. Of the steps of a round the lowest decile counts,
as it does in a profile: other programs on the machine can only make a step longer. A round begins
when the machine is calm, if that is soon.
Usage: profile_runs.py PATH_OF_TENUTO [--json] [MODEL...]
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from paced_runs import toml_of

# name, model settings: with a narrow model the head and the embedding of 256 bytes are small, with
# few blocks and long rows they are not.
MODELS = [
    ("gpt", {"layers": 4, "width": 128, "heads": 4, "sequence": 64}),
    ("unequal", {"layers": 3, "width": 64, "heads": 2, "sequence": 128}),
]
MICROS, ROWS, STEPS, ROUNDS = 8, 4, 20, 5
EXCHANGE = 0.2   # seconds
CALM_LIMIT = 20  # seconds that a round waits for a calm machine
LIMIT = 300


def run(*words):
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True,
                          timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}{done.stdout}")
    return done.stdout


def below(process):
    """The processes of the tree below a process, by the order of their numbers."""
    found = []
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *below(child)]
    return sorted(found)


def place(processes, core):
    for process in processes:
        for task in pathlib.Path(f"/proc/{process}/task").iterdir():
            os.sched_setaffinity(int(task.name), {core})


class Swaps:
    """While it lives, two groups of processes change their cores each EXCHANGE seconds.

    The cores of a virtual machine can differ by 25 % for minutes, by the load of other machines.
    The exchange gives both groups the same share of both cores.
    """

    def __init__(self, groups):
        self.groups = groups  # a function without arguments: two lists of processes
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.exchange)

    def exchange(self):
        cores = sorted(os.sched_getaffinity(0))[:2]
        while len(cores) == 2 and not self.ended.wait(EXCHANGE):
            try:
                for core, group in zip(cores, self.groups()):
                    place(group, core)
            except (FileNotFoundError, ProcessLookupError):
                pass  # a process has ended meanwhile
            cores.reverse()

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def start(words):
    return subprocess.Popen([str(word) for word in words], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def is_calm():
    """Whether loops of equal work take equally long on both cores: three of four within 10 %."""
    before = os.sched_getaffinity(0)
    times = []
    for core in sorted(before)[:2]:
        os.sched_setaffinity(0, {core})
        end = time.perf_counter() + 0.15
        while (begin := time.perf_counter()) < end:
            for _ in range(20000):
                pass
            times.append(time.perf_counter() - begin)
    os.sched_setaffinity(0, before)
    return sorted(times)[len(times) * 3 // 4] <= 1.1 * min(times)


def wait_until_calm():
    """Waits until nothing else seems to run on the machine and its host, for CALM_LIMIT at most."""
    end = time.monotonic() + CALM_LIMIT
    while not is_calm():
        if time.monotonic() > end:
            return False
        time.sleep(1)
    return True


def run_at_once(*commands):
    started = [start(words) for words in commands]
    with Swaps(lambda: [below(process.pid) for process in started]):
        wait_for(commands, started)


def wait_for(commands, started):
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
    job = folder / "job.toml"
    job.write_text(toml_of(settings))
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
    words = (TENUTO, "train", job, f"--parallel.plan={plan}", f"--job.name={name}", "--overwrite")
    training = start(words)
    with Swaps(lambda: [[worker] for worker in below(training.pid)]):
        wait_for([words], [training])
    metrics = (job.parent / "runs" / name / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step_ms"] for line in metrics[3:]]


def decile(times):
    """The lowest decile, which is what a profile takes of the times of an op."""
    return statistics.quantiles(times, n=10)[0]


def measure_once(folder, job, free, plans):
    """A round: two profiles at the same time, then both trainings. Makes the plans if missing."""
    began_calm = wait_until_calm()
    turns = ("one", "two")
    run_at_once(*([TENUTO, "profile", job, "--out", folder / turn] for turn in turns))
    one, two = (times_of(folder / turn) for turn in turns)
    profile = folder / "one"
    if not plans:
        plans["planned"] = folder / "planned.json"
        run(TENUTO, "plan", "--chain", profile / "model.json", "--cluster",
            profile / "cluster.json", "--micros", MICROS, "--plan", plans["planned"])
        plans["uniform"] = write_uniform(folder, len(one))
    seen = {"calm": began_calm, "profiles_differ": abs(sum(two) / sum(one) - 1),
            "a_layer_differs": max(abs(b / a - 1) for a, b in zip(one, two))}
    for which, plan in plans.items():
        seen[f"{which}_promised_ms"] = price(profile, plan)
        seen[f"{which}_step_ms"] = decile(step_of(free, plan, which))
        seen[f"{which}_ratio"] = seen[f"{which}_step_ms"] / seen[f"{which}_promised_ms"]
    for key in ("promised", "step"):
        seen[f"gain_{key}"] = seen[f"uniform_{key}_ms"] / seen[f"planned_{key}_ms"]
    seen["gain_ratio"] = seen["gain_step"] / seen["gain_promised"]
    return seen


def measure(name, model, root, text):
    folder = root / name
    folder.mkdir()
    job = write_job(folder, model, text)
    lines = [line for line in job.read_text().splitlines()
             if line.split(" ")[0] not in ("stages", "micros")]
    free = folder / "free.toml"  # what the plan says is left out
    free.write_text("\n".join(lines) + "\n")
    plans = {}
    rounds = [measure_once(folder, job, free, plans) for _ in range(ROUNDS)]
    result = {key: statistics.median(seen[key] for seen in rounds) for key in rounds[0]}
    return {"model": name, "layers": len(times_of(folder / "one")), **result,
            "calm": sum(seen["calm"] for seen in rounds),
            "a_layer_differs_at_most": max(seen["a_layer_differs"] for seen in rounds)}


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
    for row in results:
        print(f"{row['model']}: {row['layers']} layers; two profiles differ by "
              f"{100 * row['profiles_differ']:.1f} % in sum, by "
              f"{100 * row['a_layer_differs']:.1f} % in a layer (at most "
              f"{100 * row['a_layer_differs_at_most']:.1f} %); {row['calm']} of {ROUNDS} rounds "
              "began on a calm machine")
        for which in ("planned", "uniform"):
            print(f"  {which:8} promised {row[f'{which}_promised_ms']:8.2f} ms, trained in "
                  f"{row[f'{which}_step_ms']:8.2f} ms (x {row[f'{which}_ratio']:.3f})")
        print(f"  gain     promised x {row['gain_promised']:.3f}, trained x "
              f"{row['gain_step']:.3f} (x {row['gain_ratio']:.3f})")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    TENUTO = sys.argv[1]
    main()
