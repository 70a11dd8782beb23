"""Two jobs on one host: what it costs the one that stays synchronous when the other one leaves.

    bench/two_jobs.py TENUTO [--seconds 30] [--repeats 3] [--runs 0.5] [--width 64]
        [--network MB/S]

TENUTO is the program, with tenuto-worker beside it. Each job has two replicas and two servers.
One replica of job A runs for --runs of the time only (it is stopped and continued, ten times a
second), so A would gain from leaving the synchronous mode. Job B stays synchronous. Each row is a
way in which A runs beside B: not at all, synchronous, in the mode that it chooses as far as the
ledger of the host lets it, and in the mode that it chooses without a ledger. For each there are
the time of B's step, the cores that B uses, and those that it has lost to A's leaving: what its
steps are longer than beside a synchronous A, as a part of these cores; the time of A's step, the
share of A's steps that are not synchronous, and what the ledger has said. Times are means over
the repeats, with their standard errors; the rows take turns. With --network the ledger also shares
a network of so many megabytes per second, which the loopback plays.
"""
import argparse
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from paced_runs import Lost, begin, lines_of, processor_seconds, toml_of, workers_of

REPLICAS, SERVERS, LIMIT = 2, 2, 120  # LIMIT: seconds until the first steps, and until the end
WARM_UP = 5                           # steps that are not measured
PERIOD = 0.1                          # seconds, of a stop and a continuation
ROWS = ("alone", "A synchronous", "A with the ledger", "A without a ledger")


class SlowProcess(threading.Thread):
    """Lets a process run for a part of the time only."""

    def __init__(self, process, runs):
        super().__init__(daemon=True)
        self.process, self.runs, self.over = process, runs, threading.Event()

    def run(self):
        try:
            while not self.over.wait(PERIOD * self.runs):
                os.kill(self.process, signal.SIGSTOP)
                self.over.wait(PERIOD * (1 - self.runs))
                os.kill(self.process, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def end(self):
        self.over.set()
        self.join()


def job_text(folder, options, mode, ledger):
    sync = {"architecture": "servers", "servers": SERVERS, "mode": mode}
    if ledger:
        sync["ledger"] = str(folder / "ledger")
        sync["ledger_megabytes_per_second"] = options.network
    return toml_of({"job": {"steps": 10_000_000, "directory": str(folder), "checkpoint_every": 0,
                            "validate_every": 0, "validate_micros": 0},
                    "data": {"paths": [str(folder / "text.txt")]},
                    "model": {"layers": 2, "width": options.width, "heads": 2, "sequence": 64},
                    "optimizer": {"clip": 0.0, "schedule": "constant"},
                    "parallel": {"stages": 1, "pipelines": REPLICAS, "micros": 2, "micro_rows": 2},
                    "device": {"kind": "cpu"},
                    "network": {"connect_seconds": float(LIMIT)},
                    "resilience": {"silence_seconds": 30.0},
                    "sync": sync})


class Job:
    """One run under way."""

    def __init__(self, options, folder, name, mode, ledger):
        path = folder / f"{name}.toml"
        path.write_text(job_text(folder, options, mode, ledger))
        self.name, self.folder = name, folder / name
        self.process = begin(options.program, path, name)

    def steps(self):
        path = self.folder / "metrics.jsonl"
        # The last line may be half written.
        return lines_of_whole(path) if path.exists() else []

    def wait(self):
        end = time.monotonic() + LIMIT
        while len(self.steps()) < WARM_UP:
            if self.process.poll() is not None:
                raise Lost(f"{self.name} has ended: {self.process.communicate()[1]}")
            if time.monotonic() > end:
                self.process.kill()
                raise Lost(f"{self.name} has made no {WARM_UP} steps within {LIMIT} s")
            time.sleep(0.05)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        try:
            errors = self.process.communicate(timeout=LIMIT)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Lost(f"{self.name} does not end within {LIMIT} s") from None
        if self.process.returncode != 130:
            raise Lost(f"{self.name}: exit code {self.process.returncode}: {errors}")

    def told(self, kind):
        return [line["reason"] for line in lines_of(self.folder / "events.jsonl")
                if line["event"] == kind]


def lines_of_whole(path):
    text = path.read_text()
    return text[:text.rfind("\n") + 1].splitlines()


def measure(options, folder, row):
    """B's and A's seconds per step, the share of A's steps that were not synchronous, what the
    ledger said to A, and the cores that B used. The figures of A are None if it does not run."""
    with_ledger = row == "A with the ledger"
    jobs = [Job(options, folder, "b", "synchronous", with_ledger)]
    slow = None
    try:
        if row != "alone":
            mode = "synchronous" if row == "A synchronous" else "auto"
            jobs.append(Job(options, folder, "a", mode, with_ledger))
        for job in jobs:
            job.wait()
        if len(jobs) > 1:
            slow = SlowProcess(workers_of(jobs[1].process.pid)[1], options.runs)
            slow.start()
            time.sleep(options.seconds / 3)  # the chooser has measured and chosen
        before, since = [len(job.steps()) for job in jobs], time.monotonic()
        used = processor_seconds(jobs[0].process.pid)
        time.sleep(options.seconds)
        made = [len(job.steps()) - count for job, count in zip(jobs, before)]
        took = time.monotonic() - since
        cores = (processor_seconds(jobs[0].process.pid) - used) / took
    finally:
        if slow:
            slow.end()
        failure = sys.exc_info()[0]
        for job in jobs:
            if failure:
                job.process.kill()
                job.process.wait()
            else:
                job.end()
    if min(made) == 0:
        raise Lost(f"{row}: a job has made no step within {options.seconds} s")
    times = [took / count for count in made]
    if len(jobs) == 1:
        return times[0], None, None, [], cores
    modes = [line["mode"] for line in lines_of(jobs[1].folder / "metrics.jsonl")]
    measured = modes[before[1]:before[1] + made[1]]
    share = sum(mode != "synchronous" for mode in measured) / len(measured)
    return times[0], times[1], share, jobs[1].told("lease"), cores


def mean_text(values):
    """The mean in milliseconds, and its standard error."""
    values = [1000 * value for value in values]
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):8.1f} ({error:.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", type=float, default=0.5)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--network", type=float, default=0.0)
    options = parser.parse_args()
    if not 0 < options.runs <= 1 or options.repeats < 1 or options.seconds <= 0:
        parser.error("--runs takes a part above 0 and up to 1; --repeats and --seconds are above 0")
    if options.network < 0:
        parser.error("--network takes megabytes per second, or 0 for a network that is not shared")
    results = {row: [] for row in ROWS}
    for _ in range(options.repeats):
        for row in ROWS:
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                text = "".join(f"{i} and {i * 7 % 101} make {i * i % 97}.\n" for i in range(4000))
                (folder / "text.txt").write_text(text)
                results[row].append(measure(options, folder, row))
    print(f"{options.repeats} x {options.seconds:.0f} s on {len(os.sched_getaffinity(0))} cores; "
          f"replica 1 of A runs for {100 * options.runs:.0f} % of the time\n")
    print("row                  B: ms per step      B: cores  lost by B  A: ms per step     "
          "A not synchronous")
    beside = statistics.mean(one[0] for one in results["A synchronous"])
    needed = statistics.mean(one[4] for one in results["A synchronous"])
    for row, found in results.items():
        cores = statistics.mean(one[4] for one in found)
        lost = needed * (1 - beside / statistics.mean(one[0] for one in found))
        loss = f"{lost:.2f}" if row in ROWS[2:] else ""
        own = mean_text([one[1] for one in found]) if found[0][1] else f"{'':8}"
        share = f"{100 * statistics.mean(one[2] for one in found):.0f} %" if found[0][1] else ""
        step = mean_text([one[0] for one in found])
        print(f"{row:20} {step:19} {cores:8.2f}  {loss:9}  {own:18} {share}")
    print("\nwhat the ledger said to A:")
    for found in results["A with the ledger"]:
        for sentence in found[3]:
            print(f"  {sentence}")


if __name__ == "__main__":
    try:
        main()
    except Lost as lost:
        sys.exit(str(lost))
