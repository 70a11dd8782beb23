"""What the page and the metrics cost the coordinator of a run with 16 workers.

    bench/page_cost.py TENUTO [--seconds 20] [--turns 3] [--json]

TENUTO is the program, with tenuto-worker-paced beside it. 4 pipelines of 4 stages, whose ops take
10 ms on paced devices, train while in turns nobody looks, and one page polls and one Prometheus
scrapes, each once a second. The processor time of the coordinator's process (user and system, from
/proc) is printed as a share of one core: its own share, the share with both clients, and the
difference. The kernel counts in ticks of 10 ms, so a turn of 20 s is exact to 0.05 %.
"""
import argparse
import json
import pathlib
import signal
import sys
import tempfile
import time
import urllib.request

from paced_runs import begin, lines_of, processor_seconds, toml_of

STAGES, PIPELINES, OP_MS = 4, 4, 10.0
LIMIT = 120      # seconds for the run to begin, to answer, and to end
ATTENTION = 12   # so long after the last look the coordinator shows less again (page/board.h)


def job_text(folder):
    return toml_of({"job": {"steps": 1_000_000, "directory": str(folder), "checkpoint_every": 0,
                            "validate_micros": 0},
                    "parallel": {"stages": STAGES, "pipelines": PIPELINES, "micros": 8},
                    "device": {"kind": "paced", "forward_ms": [OP_MS],
                               "backward_input_ms": [OP_MS], "backward_weight_ms": [OP_MS]}})


def coordinator_of(launcher):
    """The process of the coordinator: the only child of the launcher that is no worker."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has ended
        if parent == launcher and "--worker" not in words:
            found.append(int(entry.name))
    if len(found) != 1:
        sys.exit(f"expected one coordinator below process {launcher}, found {found}: is this a "
                 "program of this version?")
    return found[0]


class Clients:
    """A page and a Prometheus: both have the address of the page and its token."""

    def __init__(self, url):
        self.base, _, self.token = url.partition("?token=")
        self.since, self.bytes, self.answers = 0, 0, 0

    def ask(self, path):
        request = urllib.request.Request(
            self.base + path, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            text = answer.read()
        self.bytes += len(text)
        self.answers += 1
        return text

    def look_for(self, seconds):
        """Asks once a second, as live.js and a scrape interval of 1 s do."""
        begin_at = time.monotonic()
        for second in range(seconds):
            time.sleep(max(0.0, begin_at + second - time.monotonic()))
            self.since = json.loads(self.ask(f"api/state?since={self.since}"))["serial"]
            self.ask("metrics")
        time.sleep(max(0.0, begin_at + seconds - time.monotonic()))


def share_of(process, during):
    """The processor time of the process while `during` runs, as a share of one core."""
    begin_at, before = time.monotonic(), processor_seconds(process)
    during()
    return (processor_seconds(process) - before) / (time.monotonic() - begin_at)


def measure(program, root, seconds, turns):
    job = root / "job.toml"
    job.write_text(job_text(root))
    run = begin(program, job, "page")
    try:
        end = time.monotonic() + LIMIT
        while len(lines_of(root / "page" / "metrics.jsonl")) < 5:
            if run.poll() is not None or time.monotonic() > end:
                sys.exit(f"the run does not begin: {run.stderr.read() if run.poll() else ''}")
            time.sleep(0.1)
        coordinator = coordinator_of(run.pid)
        clients = Clients((root / "page" / "page.url").read_text().strip())
        alone, watched = [], []
        for _ in range(turns):
            time.sleep(ATTENTION if watched else 0)
            alone.append(share_of(coordinator, lambda: time.sleep(seconds)))
            clients.ask("")  # a browser loads the page once
            watched.append(share_of(coordinator, lambda: clients.look_for(seconds)))
    finally:
        run.send_signal(signal.SIGTERM)
        try:
            run.wait(timeout=LIMIT)
        finally:
            run.kill()
    own, both = (100 * sum(shares) / turns for shares in (alone, watched))
    return {"workers": STAGES * PIPELINES, "seconds": seconds, "turns": turns,
            "coordinator_percent": own, "with_page_percent": both, "page_percent": both - own,
            "answers": clients.answers, "kilobytes_per_second":
            clients.bytes / 1000 / (seconds * turns)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=20, help="of each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.seconds < 1 or options.turns < 1:
        parser.error("--seconds and --turns are whole numbers of at least 1")
    with tempfile.TemporaryDirectory() as root:
        found = measure(options.program, pathlib.Path(root), options.seconds, options.turns)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{found['workers']} workers: the coordinator takes {found['coordinator_percent']:.2f} % "
          f"of a core, with a page and a Prometheus {found['with_page_percent']:.2f} %: they cost "
          f"{found['page_percent']:.2f} % ({found['kilobytes_per_second']:.1f} kB/s)")


if __name__ == "__main__":
    main()
