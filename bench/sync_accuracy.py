"""The held-out loss of training with `mode = "auto"` beside synchronous training, over some seeds.

    bench/sync_accuracy.py TENUTO [--model gpt] [--seeds 5] [--optimizer adamw] [--steps 300]
                           [--slow 4] [--json]

TENUTO is the program, with tenuto-worker beside it. Four replicas and two servers train a small
GPT, or the MLP of examples/classifier.toml, on the CPU for the same number of steps, with
`sync.mode = "synchronous"` and with "auto". One replica is slowed in both: the script stops its
process (SIGSTOP) most of the time, so that it computes `--slow` times longer. Both runs of a seed
begin with the same parameters and read the same data. The table has the validation loss after the
last step, and in which modes the steps of auto were. The last line compares auto's mean with the
mean and the standard deviation of synchronous training over the seeds. The script fails if auto's
mean is above by more than this standard deviation, or if auto never left the synchronous mode.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import threading
import time

from paced_runs import Lost, workers_of
from served_runs import ServedRun, end_on_signals

REPLICAS, SERVERS, MICROS = 4, 2, 4
SLOWED = 1       # the replica, which is also the number of its worker
PERIOD = 0.02    # seconds in which the slowed process is stopped and continued once
# The settings of [optimizer], and what age costs the chooser.
OPTIMIZERS = {
    "sgd": ({"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": 0.3}, 0.3),
    "momentum": ({"kind": "sgd", "momentum": 0.9, "weight_decay": 0.0, "learning_rate": 0.03},
                 0.6),
    "adamw": ({"kind": "adamw", "learning_rate": 4e-3}, 2.0),
}
FORTUNES = "/usr/share/games/fortunes"
CLASSES = ["computers", "cookie", "platitudes", "songs-poems"]
# The sections [model] and [data] of each model, the rows of a micro-batch, and its learning rates.
MODELS = {
    "gpt": ({"layers": 2, "width": 128, "heads": 4, "sequence": 64}, {"paths": [FORTUNES]}, 2, {}),
    "mlp": ({"kind": "mlp", "layers": 3, "width": 384, "sequence": 64, "dropout": 0.1},
            {"kind": "classes", "paths": [f"{FORTUNES}/{name}" for name in CLASSES]},
            64, {"adamw": 1e-3}),
}


def sections_of(options, seed, mode):
    optimizer, kappa = OPTIMIZERS[options.optimizer]
    model, data, rows, rates = MODELS[options.model]
    rate = options.rate or rates.get(options.optimizer, optimizer["learning_rate"])
    return {
        "job": {"steps": options.steps, "seed": seed, "checkpoint_every": 0, "validate_every": 0,
                "validate_micros": 64},
        "data": {**data, "paths": options.data or data["paths"]},
        "model": model,
        "optimizer": {**optimizer, "learning_rate": rate},
        "parallel": {"pipelines": REPLICAS, "micros": MICROS, "micro_rows": rows},
        "sync": {"architecture": "servers", "servers": SERVERS, "mode": mode, "kappa": kappa},
    }


@contextlib.contextmanager
def slowed(process, factor):
    """Lets the process run for one part in `factor` of the time."""
    handle, ended = os.pidfd_open(process), threading.Event()

    def send(number):
        with contextlib.suppress(ProcessLookupError):  # it may end before the script knows
            signal.pidfd_send_signal(handle, number)

    def stop_and_continue():
        while not ended.wait(PERIOD / factor):
            send(signal.SIGSTOP)
            ended.wait(PERIOD * (1 - 1 / factor))
            send(signal.SIGCONT)

    thread = threading.Thread(target=stop_and_continue, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        os.close(handle)


def train(options, folder, seed, mode):
    """One run: its validation loss at the end, its seconds, and its steps in each kind of mode."""
    begun = time.monotonic()
    sections = sections_of(options, seed, mode)
    with ServedRun(options.program, folder, f"{mode}-{seed}", sections) as run:
        run.wait_until(run.metrics, options.limit, "the first step")
        process = workers_of(run.process.pid).get(SLOWED)
        if process is None:
            run.fail(f"there is no process of worker {SLOWED}")
        with slowed(process, options.slow):
            run.finish(0, options.limit)
        lines = run.metrics()
    last = lines[-1]
    if last["step"] != options.steps - 1 or "validation_loss" not in last:
        raise Lost(f"seed {seed}, {mode}: there is no validation after the last step")
    kinds = collections.Counter(line["mode"].split(":")[0] for line in lines)
    return {"seed": seed, "mode": mode, "loss": last["validation_loss"],
            "accuracy": last.get("validation_accuracy"),
            "seconds": time.monotonic() - begun, "modes": dict(kinds.most_common())}


def print_rows(pairs, options):
    print(f"{options.model}, {options.optimizer}, {options.steps} steps, replica {SLOWED} computes "
          f"{options.slow:g} times longer")
    print("seed  synchronous    auto  auto - synchronous  seconds   steps of auto")
    for plain, auto in pairs:
        steps = ", ".join(f"{count} {mode}" for mode, count in auto["modes"].items())
        print(f"{plain['seed']:4}  {plain['loss']:11.4f}  {auto['loss']:6.4f}  "
              f"{auto['loss'] - plain['loss']:18.4f}  {plain['seconds']:.0f}, "
              f"{auto['seconds']:.0f}  {steps}")


def summary_of(pairs):
    plain = [one["loss"] for one, _ in pairs]
    auto = [other["loss"] for _, other in pairs]
    spread = statistics.stdev(plain)
    difference = statistics.mean(auto) - statistics.mean(plain)
    return {"synchronous": statistics.mean(plain), "auto": statistics.mean(auto),
            "difference": difference, "spread": spread, "within": abs(difference) <= spread,
            "above": difference > spread}


def options_of():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", metavar="TENUTO")
    parser.add_argument("--model", choices=sorted(MODELS), default="gpt")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (5)")
    parser.add_argument("--first-seed", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adamw")
    parser.add_argument("--rate", type=float, help="learning rate (sgd: 0.3, momentum: 0.03, "
                        "adamw: 0.004, of the mlp 0.001)")
    parser.add_argument("--steps", type=int, default=300, help="steps of a run (300)")
    parser.add_argument("--slow", type=float, default=4,
                        help="how many times longer the slowed replica computes (4)")
    parser.add_argument("--data", nargs="+",
                        help="files or folders to learn from; for an mlp, a file is a class")
    parser.add_argument("--limit", type=float, default=1800, help="seconds of a run at most (1800)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("expected --seeds of at least 2: their spread is what auto is compared with")
    if options.slow <= 1:
        parser.error("expected --slow above 1: a replica has to be slower than the others")
    for path in options.data or MODELS[options.model][1]["paths"]:
        if not pathlib.Path(path).exists():
            parser.error(f"there is no {path}: name files or folders of text with --data")
    if options.data:
        options.data = [str(pathlib.Path(path).resolve()) for path in options.data]
    return options


def main():
    options = options_of()
    end_on_signals()
    pairs = []
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as folder:
        for i in range(options.seeds):
            seed = options.first_seed + i
            ways = ["synchronous", "auto"] if i % 2 == 0 else ["auto", "synchronous"]
            of = {mode: train(options, pathlib.Path(folder), seed, mode) for mode in ways}
            pairs.append((of["synchronous"], of["auto"]))
            print(f"seed {seed}: {of['synchronous']['loss']:.4f}, {of['auto']['loss']:.4f}",
                  file=sys.stderr, flush=True)
    summary = summary_of(pairs)
    if options.json:
        print(json.dumps({**summary, "runs": [one for pair in pairs for one in pair]}))
    else:
        print_rows(pairs, options)
        print(f"mean of auto {summary['auto']:.4f}, of synchronous {summary['synchronous']:.4f} "
              f"with a standard deviation of {summary['spread']:.4f} over {len(pairs)} seeds: "
              f"auto is {'' if summary['within'] else 'not '}within it")
    stayed = [auto["seed"] for _, auto in pairs if set(auto["modes"]) <= {"synchronous"}]
    if stayed:
        raise Lost(f"auto never left the synchronous mode with seeds {stayed}: nothing is compared")
    return 1 if summary["above"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Lost as lost:
        sys.exit(f"sync_accuracy.py: {lost}")
