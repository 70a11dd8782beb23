"""After a kill: Tenuto beside torchft, and beside torchrun, which restarts from a checkpoint.

    ./run python bench/compare/after_a_kill.py [--quick] [--json]

Four members train data-parallel in real time: a step sleeps, then sums gradients over the loopback.
In the middle of a step one member's process gets SIGKILL. "next step" is the time from there until
the others have done a step, "new step" until they have done one that had not been done before.
"steps lost" are steps that are computed again, or whose gradients are dropped. Medians over runs
that took turns; the ratio is that of "new step" to Tenuto's. torchft is an optional package of
PyPI (./run python -m pip install torchft); without it its row stays out.
"""
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from common import (LIMIT, LineProcess, Lost, has_module, median, parser_of, pin, pin_workers,
                    ratios, read_flags, run_main, settings_of, show, stop, versions, whole_lines)
from paced_runs import toml_of, workers_of

MEMBER = pathlib.Path(__file__).resolve().parent / "killed_member.py"
MEMBERS, KILLED = 4, 1
MICROS = 4            # of a member's step: three ops each
HEARTBEAT_MS = 500    # torchft's lighthouse; members send one every 100 ms
JOIN_MS = 100
CHECKPOINT_EVERY = 10
BEGUN = 12            # steps before the kill
CLAIM = ("Published, on other machines: ReCycle has up to 1.46x the throughput of Oobleck and "
         "1.64x that of Bamboo under failures.")
NOTE = ("torchft and torchrun have short timeouts here (see the settings); torchrun's time is "
        "mostly that of starting Python and torch again.")


class System:
    """A training under way. Each of the derived classes starts its own processes."""

    def __init__(self, flags, folder):
        self.flags, self.folder, self.started = flags, folder, []
        self.log = folder / "steps-0"

    def begin(self, words, **environment):
        """Starts a process whose output is in the file `said`."""
        with (self.folder / "said").open("a") as said:
            self.started.append(subprocess.Popen(
                [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                     **environment}))

    def lines(self):
        return whole_lines(self.log)

    def steps(self):
        """The steps done so far, in order."""
        return [line["step"] for line in self.lines() if "step" in line]

    def victim(self):
        """The process to kill."""
        return int((self.folder / f"pid-{KILLED}").read_text())

    def pin(self):
        for member in range(MEMBERS):
            pin(int((self.folder / f"pid-{member}").read_text()), member)

    def dropped(self):
        """How many steps were run whose gradients are in no update."""
        return sum("discarded" in line for line in self.lines())

    def wait(self, done, what):
        end = time.monotonic() + LIMIT
        while not done():
            ended = [process for process in self.started if process.poll() is not None]
            if ended and all(process.returncode != -signal.SIGKILL for process in ended):
                raise Lost(f"{type(self).__name__} has ended: {self.said()}")
            if time.monotonic() > end:
                raise Lost(f"{type(self).__name__}: not within {LIMIT} s: {what}: {self.said()}")
            time.sleep(0.002)

    def said(self):
        return (self.folder / "said").read_text(errors="replace")[-2000:]

    def end(self):
        for process in self.started:
            stop(process)


class Tenuto(System):
    def __init__(self, flags, folder):
        super().__init__(flags, folder)
        self.log = folder / "run" / "metrics.jsonl"
        times = {f"{name}_ms": [flags.step_ms / MICROS / 3] for name in
                 ("forward", "backward_input", "backward_weight")}
        job = folder / "job.toml"
        job.write_text(toml_of({
            "job": {"name": "run", "steps": 1_000_000, "directory": str(folder),
                    "checkpoint_every": 0, "validate_every": 0, "validate_micros": 0},
            "parallel": {"stages": 1, "pipelines": MEMBERS, "micros": MICROS},
            "optimizer": {"kind": "sgd", "clip": 0.0},
            "device": {"kind": "paced", "clock": "real", **times,
                       "parameter_bytes": flags.kib << 10}}))
        self.begin([flags.tenuto, "train", job])

    def victim(self):
        return workers_of(self.started[0].pid)[KILLED]

    def pin(self):
        pin_workers(self.started[0].pid)


class Torchrun(System):
    def __init__(self, flags, folder):
        super().__init__(flags, folder)
        self.begin([sys.executable, "-m", "torch.distributed.run", "--standalone",
                    f"--nproc-per-node={MEMBERS}", "--max-restarts=3", "--monitor-interval=0.05",
                    MEMBER, "torchrun", folder, flags.step_ms, flags.kib << 10, CHECKPOINT_EVERY])


class Torchft(System):
    def __init__(self, flags, folder):
        super().__init__(flags, folder)
        self.lighthouse = LineProcess([sys.executable, MEMBER, "lighthouse", HEARTBEAT_MS, JOIN_MS,
                                       MEMBERS - 1])
        self.started.append(self.lighthouse.process)
        address = self.lighthouse.read()
        for member in range(MEMBERS):
            self.begin([sys.executable, MEMBER, "torchft", folder, flags.step_ms, flags.kib << 10,
                        MEMBERS - 1, member, address])


def measure(kind, flags, wait):
    """Kills a member `wait` of a step after a step: ms to the next step, ms to a new step, steps
    lost."""
    with tempfile.TemporaryDirectory(prefix="tenuto-compare-") as name:
        system = kind(flags, pathlib.Path(name))
        try:
            system.wait(lambda: len(system.steps()) >= 3, "the first steps")
            system.pin()
            system.wait(lambda: len(system.steps()) >= BEGUN, "the steps before the kill")
            time.sleep(wait * flags.step_ms / 1e3)
            before, dropped = system.steps(), system.dropped()
            os.kill(system.victim(), signal.SIGKILL)
            killed = time.monotonic()
            system.wait(lambda: len(system.steps()) > len(before), "a step after the kill")
            again = time.monotonic()
            system.wait(lambda: system.steps()[-1] > before[-1], "a new step after the kill")
            new = time.monotonic()
            redone = before[-1] + 1 - system.steps()[len(before)]
            return (1000 * (again - killed), 1000 * (new - killed),
                    redone + system.dropped() - dropped)
        finally:
            system.end()


def flags_of():
    parser = parser_of(__doc__)
    parser.add_argument("--step-ms", type=float, default=240)
    parser.add_argument("--kib", type=int, default=1024, help="of gradients")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    flags = read_flags(parser, 5)
    if flags.step_ms <= 0 or flags.kib < 1:
        parser.error("--step-ms is above 0, --kib at least 1")
    return flags


def main():
    flags = flags_of()
    kinds, notes = {"tenuto": Tenuto}, [NOTE, CLAIM]
    for name, module, kind in (("torchft", "torchft", Torchft), ("torchrun", "torch", Torchrun)):
        if has_module(module):
            kinds[name] = kind
        else:
            notes.append(f"{name}: this Python has no {module}; to compare with it, type\n"
                         f"  ./run python -m pip install {module}")
    chance, found = random.Random(flags.seed), {name: [] for name in kinds}
    for _ in range(flags.repeats):
        wait = 0.1 + 0.6 * chance.random()
        for name, kind in kinds.items():
            found[name].append(measure(kind, flags, wait))
    rows = []
    for name, runs in found.items():
        again, new, lost = map(list, zip(*runs))
        rows.append([name, median(again), median(new), float(median(lost)),
                     median(new) / flags.step_ms,
                     ratios(new, [run[1] for run in found["tenuto"]])])
    settings = settings_of(flags, **versions("torch", "torchft"), members=MEMBERS,
                           step_ms=flags.step_ms, gradients_kib=flags.kib, backend="Gloo",
                           heartbeat_timeout_ms=HEARTBEAT_MS, join_timeout_ms=JOIN_MS,
                           checkpoint_every=CHECKPOINT_EVERY, monitor_interval_ms=50)
    show(flags, settings, ["system", "next step ms", "new step ms", "steps lost",
                           "new step/step", "over tenuto"], rows, notes)


if __name__ == "__main__":
    run_main(main)
