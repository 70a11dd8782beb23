"""After a kill: Tenuto beside torchft, and beside torchrun, which restarts from a checkpoint.

    ./run python bench/compare/after_a_kill.py [--quick] [--json]

Four members train data-parallel in real time: a step sleeps, then sums gradients over the loopback.
In the middle of a step one member's process gets SIGKILL, and it is started again. "next step" is
the time from there until the others have done a step, "new step" until they have done one that had
not been done before, "all again" until all four have done a step together. "steps lost" are steps
that are computed again, or whose gradients are dropped. Medians over runs that took turns; the
ratio is that of "new step" to Tenuto's. torchft is an optional package of PyPI (./run python -m pip
install torchft==0.2.0); if it cannot be imported, the last lines say why.
"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from common import (LIMIT, LineProcess, Lost, median, parser_of, pin, pin_workers, ratio, ratios,
                    read_flags, run_main, settings_of, show, stop, versions, whole_lines, why_not)
from paced_runs import toml_of, workers_of

MEMBER = pathlib.Path(__file__).resolve().parent / "killed_member.py"
MEMBERS, KILLED = 4, 1
MICROS = 4            # of a member's step: three ops each
RESTART_MS = 1000     # until the member is started again; torchrun's agent does not wait
# The settings of torchft that go on soonest and still let all members train together: three of its
# heartbeats of 100 ms; half of the members make a step; parts of a step that an all-reduce may
# last, and that the lighthouse waits for members which it hears but which do not ask for a step.
HEARTBEAT_MS, LEAST, SUM_STEPS, JOIN_STEPS = 300, MEMBERS // 2, 2, 1.25
CHECKPOINT_EVERY = 10
BEGUN = 12            # steps before the kill
IN_FORCE = re.compile(r"plan (\d+) \([^)]*\) is in force from step (\d+)")
WITH_ALL = re.compile(r"plan (\d+) \([^)]*\) is proposed: [^;]* has the state of version")
CLAIM = ("Published, on other machines: ReCycle has up to 1.46x the throughput of Oobleck and "
         "1.64x that of Bamboo under failures.")
NOTE = ("torchft and torchrun have short timeouts here (see the settings); torchrun's time is "
        "mostly that of starting Python and torch again. Until the member is back, torchft's steps "
        "lack its gradients, and Tenuto's others compute them, so that their steps are longer.")


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

    def is_complete(self):
        """Whether all members train together."""
        return len(self.steps()) >= 3

    def start_again(self):
        """Starts the member again, if the system does not do that by itself."""

    def whole(self, before):
        """Whether all members have done a step together, after the first `before` lines."""
        return len(self.lines()) > before

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
            if any(process.returncode != -signal.SIGKILL for process in ended):
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
            "resilience": {"restarts": 1},
            "device": {"kind": "paced", "clock": "real", **times,
                       "parameter_bytes": flags.kib << 10}}))
        self.begin([flags.tenuto, "train", job])

    def whole(self, before):
        said = " ".join(line["reason"] for line in whole_lines(self.log.with_name("events.jsonl")))
        with_all = [match[1] for match in WITH_ALL.finditer(said)]
        first = [int(match[2]) for match in IN_FORCE.finditer(said) if match[1] in with_all]
        return bool(first) and self.steps()[-1] >= first[0]

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
        self.lighthouse = LineProcess([sys.executable, MEMBER, "lighthouse", HEARTBEAT_MS,
                                       round(JOIN_STEPS * flags.step_ms), LEAST])
        self.started.append(self.lighthouse.process)
        self.address = self.lighthouse.read()
        for member in range(MEMBERS):
            self.begin_member(member)

    def begin_member(self, member):
        self.begin([sys.executable, MEMBER, "torchft", self.folder, self.flags.step_ms,
                    self.flags.kib << 10, LEAST, member, self.address,
                    SUM_STEPS * self.flags.step_ms])

    def is_complete(self):
        last = self.lines()[-3:]
        return len(last) == 3 and all("step" in line and line["members"] == MEMBERS
                                      for line in last)

    def start_again(self):
        self.begin_member(KILLED)

    def whole(self, before):
        members = [line["members"] for line in self.lines()[before:] if "step" in line]
        missed = next((place for place, count in enumerate(members) if count < MEMBERS), None)
        return missed is not None and MEMBERS in members[missed:]


def measure(kind, flags, wait):
    """Kills a member `wait` of a step after a step: ms to the next step, ms to a new step, ms to a
    step of all members, steps lost."""
    with tempfile.TemporaryDirectory(prefix="tenuto-compare-") as name:
        system = kind(flags, pathlib.Path(name))
        try:
            system.wait(system.is_complete, "the first steps of all members")
            system.pin()
            system.wait(lambda: len(system.steps()) >= BEGUN and system.is_complete(),
                        "the steps before the kill")
            time.sleep(wait * flags.step_ms / 1e3)
            lines, before, dropped = len(system.lines()), system.steps(), system.dropped()
            os.kill(system.victim(), signal.SIGKILL)
            killed = time.monotonic()
            system.wait(lambda: len(system.steps()) > len(before), "a step after the kill")
            again = time.monotonic()
            system.wait(lambda: system.steps()[-1] > before[-1], "a new step after the kill")
            new = time.monotonic()
            # A member that has taken over the state of others may have left out a number.
            redone = max(0, before[-1] + 1 - system.steps()[len(before)])
            lost = redone + system.dropped() - dropped
            time.sleep(max(0.0, killed + RESTART_MS / 1e3 - time.monotonic()))
            system.start_again()
            system.wait(lambda: system.whole(lines), "a step of all members after the kill")
            whole = time.monotonic()
            return [1000 * (moment - killed) for moment in (again, new, whole)] + [lost]
        finally:
            system.end()


def kinds_of(notes):
    """The systems that can be compared here; `notes` gets why others cannot."""
    kinds = {"tenuto": Tenuto}
    for name, module, kind in (("torchft", "torchft", Torchft), ("torchrun", "torch", Torchrun)):
        reason = why_not(module)
        if reason is None:
            kinds[name] = kind
        else:
            notes.append(f"{name}: not tried, because this Python cannot import {module}: {reason}")
    return kinds


def compare(flags, notes):
    """The row of each system."""
    kinds = kinds_of(notes)
    chance, found = random.Random(flags.seed), {name: [] for name in kinds}
    for turn in range(flags.repeats):
        wait = 0.1 + 0.6 * chance.random()
        for name, kind in kinds.items():
            try:
                found[name].append(measure(kind, flags, wait))
            except Lost as lost:
                if name == "tenuto":
                    raise
                found[name].append([None] * 4)
                notes.append(f"{name}: run {turn + 1} is not in the medians: {lost}")
    for name, runs in found.items():
        again, new, whole, lost = map(list, zip(*runs))
        yield [name, median(again), median(new), median(whole), median(lost),
               ratio(median(new), flags.step_ms), ratios(new, [run[1] for run in found["tenuto"]])]


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
    flags, notes = flags_of(), [NOTE, CLAIM]
    rows = list(compare(flags, notes))
    settings = settings_of(flags, **versions("torch", "torchft"), members=MEMBERS,
                           step_ms=flags.step_ms, gradients_kib=flags.kib, backend="Gloo",
                           restart_after_ms=RESTART_MS, heartbeat_timeout_ms=HEARTBEAT_MS,
                           least_members=LEAST, sum_timeout_ms=SUM_STEPS * flags.step_ms,
                           join_timeout_ms=JOIN_STEPS * flags.step_ms,
                           checkpoint_every=CHECKPOINT_EVERY, monitor_interval_ms=50)
    show(flags, settings, ["system", "next step ms", "new step ms", "all again ms", "steps lost",
                           "new step/step", "over tenuto"], rows, notes)


if __name__ == "__main__":
    run_main(main)
