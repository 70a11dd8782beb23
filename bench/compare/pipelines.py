"""A pipeline's step: Tenuto beside torch.distributed.pipelining, whose stages sleep.

    ./run python bench/compare/pipelines.py [--quick] [--json]

Ops of 10 ms, 1 x 4 workers, 16 micro-batches. Both systems have real processes over the loopback,
each pinned to a core in turn, and ops that sleep; no gradient is clipped. First nobody is slow, and
each order that both have is compared with itself. Then one link takes four forwards longer each
way, then one worker has half its speed: Tenuto runs with its own remedies, and is compared with
each of PyTorch's schedules. The troubles begin in a live run, and what is measured are its last
steps. "bound" is a time that no schedule of the same work beats, "promised" the price of the row's
order (both by tenuto simulate). The columns tenuto and torch are medians in ms; ratios between them
are medians of runs that took turns.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from common import (LIMIT, LineProcess, Lost, ask_all, free_port, has_module, kill_group, median,
                    parser_of, pin_workers, ratio, ratios, read_flags, run_main, settings_of, show,
                    versions)
from paced_runs import lines_of, toml_of
from torch_schedules import SCHEDULES

HERE = pathlib.Path(__file__).resolve().parent
WORKERS, LINK, SLOW = 4, 1, 1  # the slow link joins workers 1 and 2; the slow worker is 1
BEGINS = 5                     # the step in which a trouble begins
WARM_UP = 2                    # steps that are not measured
LAYERS = 16                    # of the paced model whose layers move
MESSAGE = 65536                # bytes
QUICK = ("1f1b", "zb-h1", "zb-v")
# A stage need not wait for the norm of all others, as PyTorch's stages do not.
AUTO = {"parallel": {"optimizer": "auto"}}
# How Tenuto meets a trouble: the order with which it begins, the steps of a run, further settings.
REMEDIES = {
    "link": ("auto", 30, AUTO),
    "worker": ("1f1b", 60, {**AUTO, "resilience": {"layers": "adapt"},
                            "model": {"kind": "gpt", "layers": LAYERS - 2}}),
}
CLAIMS = (
    "Published, on other machines: Adaptra (7B, 1 x 4, a link of 30 ms): zero-bubble 703 ms, "
    "adapted 398 ms, 0.57x; at most 3.71x faster than 1F1B with one slow link.",
)


def job_sections(flags, folder, order, steps):
    times = {f"{name}_ms": [flags.op_ms] for name in
             ("forward", "backward_input", "backward_weight")}
    return {"job": {"steps": steps, "directory": str(folder), "checkpoint_every": 0,
                    "validate_every": 0, "validate_micros": 0},
            "parallel": {"stages": WORKERS, "pipelines": 1, "micros": flags.micros,
                         "order": order},
            "optimizer": {"kind": "sgd", "clip": 0.0},
            "device": {"kind": "paced", "clock": "real", "message_bytes": MESSAGE, **times},
            "resilience": {"silence_seconds": 30.0, "slow_links": "off"}}


def fault_of(flags, trouble, begins):
    """The [[fault]] tables of a trouble."""
    if trouble == "link":
        return [{"kind": "slow-link", "link": LINK, "latency_ms": 4 * flags.op_ms,
                 "at_step": begins}]
    if trouble == "worker":
        return [{"kind": "slow-worker", "worker": f"0.{SLOW}", "speed": 0.5, "at_step": begins}]
    return []


def simulated(flags, folder, order, trouble):
    """The lower bound and the price of a step in ms by `tenuto simulate`, if each step begins when
    it can."""
    job = folder / "price.toml"
    job.write_text(toml_of(job_sections(flags, folder, order, 1)))
    more = {"link": ["--slow-link", f"{LINK}:{4 * flags.op_ms}"],
            "worker": ["--slow-worker", f"0.{SLOW}:0.5"]}.get(trouble, [])
    found = subprocess.run([flags.tenuto, "simulate", str(job), "--optimizer", "in-turn", "--json",
                            *more], capture_output=True, text=True, timeout=LIMIT, check=False)
    if found.returncode != 0:
        raise Lost(f"tenuto simulate: {found.stderr}")
    answer = json.loads(found.stdout)
    return answer["lower_bound_ms"], answer["period_ms"]


class Tenuto:
    """Runs of `tenuto train`, one after the other."""

    def __init__(self, flags, folder):
        self.flags, self.folder, self.runs = flags, folder, 0

    def healthy(self, order):
        """The median step of a run without troubles, in ms."""
        steps = WARM_UP + self.flags.steps
        periods = self._train(job_sections(self.flags, self.folder, order, steps), [], steps)
        return median(periods[WARM_UP:])

    def adapted(self, trouble):
        """The median of the last steps of a run that a trouble has hit, in ms, and how many steps
        after its begin the first step took at most 5 % longer than that."""
        order, steps, more = REMEDIES[trouble]
        sections = job_sections(self.flags, self.folder, order, steps)
        for name, keys in more.items():
            sections[name] = {**sections.get(name, {}), **keys}
        sections["resilience"]["slow_links"] = "adapt"
        periods = self._train(sections, fault_of(self.flags, trouble, BEGINS), steps)
        last = median(periods[-self.flags.steps:])
        slow = [step for step in range(BEGINS, steps)
                if periods[step] is None or periods[step] > 1.05 * last]
        return last, max(slow, default=BEGINS - 1) + 1 - BEGINS

    def _train(self, sections, faults, steps):
        self.runs += 1
        name = f"run-{self.runs}"
        job, metrics = self.folder / f"{name}.toml", self.folder / name / "metrics.jsonl"
        job.write_text(toml_of(sections, faults))
        with tempfile.TemporaryFile("w+") as errors:
            run = subprocess.Popen([self.flags.tenuto, "train", str(job), f"--job.name={name}"],
                                   stdout=subprocess.DEVNULL, stderr=errors,
                                   start_new_session=True)
            try:
                end = time.monotonic() + LIMIT
                while not metrics.exists() and run.poll() is None and time.monotonic() < end:
                    time.sleep(0.01)
                pin_workers(run.pid)
                code = run.wait(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                raise Lost(f"tenuto: no end within {LIMIT} s") from None
            finally:
                kill_group(run)
            errors.seek(0)
            if code != 0:
                raise Lost(f"tenuto: exit code {code}: {errors.read()}")
        periods = [line.get("period_ms") for line in lines_of(metrics)]
        if len(periods) != steps:
            raise Lost(f"tenuto made {len(periods)} steps instead of {steps}")
        return periods


class Torch:
    """Workers of torch.distributed.pipelining, which live for the whole comparison."""

    def __init__(self, flags):
        self.flags, self.processes = flags, []
        port = free_port()
        for worker in range(WORKERS):
            self.processes.append(LineProcess(
                [sys.executable, HERE / "sleeping_stages.py", worker, WORKERS, port], worker))
        for process in self.processes:
            if process.read() != "ready":
                raise Lost(f"{process.name} does not begin: {process.told()}")

    def step(self, schedule, trouble):
        """The median step of worker 0, in ms."""
        speeds = [0.5 if trouble == "worker" and worker == SLOW else 1 for worker in range(WORKERS)]
        request = {"schedule": schedule, "micros": self.flags.micros, "op_ms": self.flags.op_ms,
                   "speeds": speeds, "link": LINK if trouble == "link" else None,
                   "delay_ms": 4 * self.flags.op_ms, "elements": MESSAGE // 8,
                   "steps": WARM_UP + self.flags.steps}
        ends = json.loads(ask_all(self.processes, json.dumps(request))[0])[WARM_UP - 1:]
        return 1000 * median([later - one for one, later in zip(ends, ends[1:])])

    def end(self):
        for process in self.processes:
            process.end()


def healthy_rows(flags, tenuto, torch):
    """Each order beside PyTorch's schedule of the same name."""
    times = {order: ([], []) for order in flags.orders}
    for turn in range(flags.repeats):
        for order, (own, other) in times.items():
            both = [lambda: own.append(tenuto.healthy(order)),
                    lambda: other.append(torch.step(order, "healthy"))]
            for run in both if turn % 2 == 0 else reversed(both):
                run()
    for order, (own, other) in times.items():
        bound, promised = simulated(flags, tenuto.folder, order, "healthy")
        yield ["healthy", order, SCHEDULES[order][0], bound, promised, median(own), median(other),
               ratio(median(own), promised), ratio(median(other), promised), ratios(own, other)]


def trouble_rows(flags, trouble, tenuto, torch):
    """Each of PyTorch's schedules, beside one run of Tenuto with its remedies for each turn."""
    own, steps, other = [], [], {order: [] for order in flags.orders}
    for _ in range(flags.repeats):
        last, after = tenuto.adapted(trouble)
        own.append(last)
        steps.append(after)
        for order, found in other.items():
            found.append(torch.step(order, trouble))
    best = min(other, key=lambda order: median(other[order]))
    for order, found in other.items():
        bound, promised = simulated(flags, tenuto.folder, order, trouble)
        yield [trouble, order, SCHEDULES[order][0] + (" (best)" if order == best else ""), bound,
               promised, median(own), median(found), None, ratio(median(found), promised),
               ratios(own, found)]
    flags.notes.append(f"{trouble}: tenuto begins with {REMEDIES[trouble][0]} and is at its last "
                       f"pace {median(steps):.0f} steps after the trouble began; its column is the "
                       "same run in each row.")


def flags_of():
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=8, help="measured steps of a run")
    parser.add_argument("--op-ms", type=float, default=10)
    parser.add_argument("--micros", type=int, default=16, help="a multiple of the 4 workers")
    parser.add_argument("--orders", default="", help=f"of {','.join(SCHEDULES)} (all)")
    parser.add_argument("--troubles", default="healthy,link,worker")
    flags = read_flags(parser, 3)
    flags.orders = [order for order in flags.orders.split(",") if order] or list(
        QUICK if flags.quick else SCHEDULES)
    for order in flags.orders:
        if order not in SCHEDULES:
            parser.error(f"--orders has '{order}': expected some of {', '.join(SCHEDULES)}")
    flags.troubles = flags.troubles.split(",")
    for trouble in flags.troubles:
        if trouble not in ("healthy", "link", "worker"):
            parser.error(f"--troubles has '{trouble}': expected some of healthy, link, worker")
    if flags.micros < WORKERS or flags.micros % WORKERS or flags.op_ms <= 0 or flags.steps < 1:
        parser.error("--micros is a multiple of 4, --op-ms is above 0, --steps is at least 1")
    flags.steps = min(flags.steps, 4) if flags.quick else flags.steps
    flags.notes = []
    if not has_module("torch"):
        parser.error("this Python has no torch: call ./run python bench/compare/pipelines.py")
    return flags


def main():
    flags = flags_of()
    rows = []
    with tempfile.TemporaryDirectory(prefix="tenuto-compare-") as name:
        tenuto = Tenuto(flags, pathlib.Path(name))
        torch = Torch(flags)
        try:
            for trouble in flags.troubles:
                rows += (healthy_rows(flags, tenuto, torch) if trouble == "healthy" else
                         trouble_rows(flags, trouble, tenuto, torch))
        finally:
            torch.end()
    settings = settings_of(flags, **versions("torch"), workers=f"1 x {WORKERS}",
                           micros=flags.micros, op_ms=flags.op_ms, steps=flags.steps,
                           message_bytes=MESSAGE, link_ms=4 * flags.op_ms, speed=0.5,
                           backend="Gloo on the loopback", pinned="each worker to a core in turn",
                           split="dw_builder")
    heads = ["trouble", "order", "torch's schedule", "bound", "promised", "tenuto", "torch",
             "tenuto/promised", "torch/promised", "tenuto/torch"]
    show(flags, settings, heads, rows, [*flags.notes, *CLAIMS])


if __name__ == "__main__":
    run_main(main)
