"""docs/script-on-hosts.md, typed from its first line: three hosts, of which two are lost."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import unittest

import namespaces_test
from harness import KILL, LIMIT, TENUTO, Case, long_case
from namespaces_test import CLUSTER, cluster

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "script-on-hosts.md"
FOLDER = "/srv/tenuto"  # the guide's folder that all hosts see
HOSTS = {"A": "0", "B": "1", "C": "2", "E": "hub"}
PYTHON = os.environ["TENUTO_TORCH_PYTHON"]


def setUpModule():
    if shutil.which("etcd") is None:
        raise unittest.SkipTest("there is no program etcd: install etcd-server")
    namespaces_test.setUpModule()


def blocks():
    """The guide's blocks in order: host, whether it stays in the foreground, commands."""
    for block in re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.M | re.S):
        first, commands = block.split("\n", 1)
        host = re.fullmatch(r"# host ([ABCE])(, stays in the foreground)?", first)
        yield HOSTS[host[1]], host[2] is not None, commands


def processes_of(host):
    listed = subprocess.run(["ip", "netns", "pids", f"vc{host}"], text=True, capture_output=True,
                            check=True, timeout=LIMIT)
    return [int(process) for process in listed.stdout.split()]


def kill(process):
    try:
        os.kill(process, KILL)
    except ProcessLookupError:
        pass


def worker_on(host, number):
    """The process of a worker: its environment names it."""
    for process in processes_of(host):
        try:
            entries = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"TENUTO_WORKER={number}".encode() in entries:
            return process
    raise AssertionError(f"host {host} has no worker {number}")


class Hosts(Case):
    def setUp(self):
        super().setUp()
        cluster("up", 3, 1000)
        self.addCleanup(cluster, "down")
        self.record = self.folder / "runs" / "hosts"
        self.stay = {}  # by host and command

    def environment(self):
        path = f"{pathlib.Path(TENUTO).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "TENUTO_PYTHON": PYTHON}

    def begin(self, host, commands):
        """Starts the commands on the host; their process is that of the last command."""
        commands = commands.replace(FOLDER, str(self.folder))
        with open(self.folder / f"{host}-{len(self.stay)}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen([CLUSTER, "exec", host, "sh", "-ec", f"exec {commands}"],
                                       stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                       env=self.environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.stay[host, " ".join(commands.split()[:2])] = process

    def type(self, host, commands):
        commands = commands.replace(FOLDER, str(self.folder))
        done = subprocess.run([CLUSTER, "exec", host, "sh", "-ec", commands], text=True,
                              capture_output=True, timeout=LIMIT, env=self.environment())
        self.assertEqual(done.returncode, 0, f"{commands}: {done.stderr}")

    def logs(self):
        found = [*self.folder.glob("*.log"), *self.record.glob("*.log"),
                 *self.record.glob("events.jsonl")]
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in found)

    def until(self, what, question):
        end = time.monotonic() + LIMIT
        while not question():
            self.assertLess(time.monotonic(), end, f"never: {what}: {self.logs()}")
            time.sleep(0.05)

    def count(self, words):
        try:
            return (self.record / "events.jsonl").read_text().count(words)
        except FileNotFoundError:
            return 0

    def steps(self):
        try:
            return (self.record / "metrics.jsonl").read_text().count("\n")
        except FileNotFoundError:
            return 0

    def go_on(self):
        count = self.steps()
        self.until("further steps", lambda: self.steps() > count + 2)

    def lose(self, host):
        """The host is gone at once: nobody hears of the ends of its processes."""
        cluster("cut", host)
        for process in processes_of(host):
            kill(process)

    def losses(self, record):
        lines = map(json.loads, (record / "metrics.jsonl").read_text().splitlines())
        return [(line["step"], line["loss"]) for line in lines]

    def undisturbed(self, steps):
        """The losses of the same script without trouble, by one worker on this host."""
        done = subprocess.run(
            [TENUTO, "launch", f"--job.steps={steps}", "--job.name=undisturbed",
             "--job.checkpoint_every=0", "--parallel.stages=1", "--parallel.pipelines=1",
             "--parallel.micros=3", "--network.device=lo", "--network.allow=[]",
             "--coordinator.store=journal", "--coordinator.etcd=[]", self.folder / "train.py"],
            text=True, capture_output=True, timeout=LIMIT, env=self.environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.losses(self.folder / "runs" / "undisturbed")

    def make_trouble(self):
        self.until("the first steps", lambda: self.steps() > 2)
        # All workers are on one machine here, but on hosts with addresses of their own.
        self.assertEqual(self.count("(10.77.0.2) has worker 2 (stage 0 of pipeline 1), worker 3 "
                                    "(stage 1 of pipeline 1)"), 1, self.logs())

        kill(worker_on("2", 4))
        self.until("the loss", lambda: self.count("the run continues without it") >= 1)
        self.until("the return", lambda: self.count("has the state of version") >= 1)
        self.go_on()

        deaths = self.count("the run continues without it")
        self.lose("2")
        self.until("the lost host", lambda: self.count("the run continues without it") > deaths)
        self.go_on()

        self.lose("0")
        self.until("a coordinator elsewhere",
                   lambda: self.count("a new coordinator continues the run") == 1)
        self.go_on()

    @long_case
    def test_a_host_and_the_host_of_the_coordinator_are_lost(self):
        for host, stays, commands in blocks():
            if stays:
                self.begin(host, commands.lstrip())
                if host == "0" and "tenuto coordinator" in commands:  # the first one leads
                    self.until("a coordinator", (self.record / "coordinator.json").exists)
                continue
            if "tenuto inject" in commands:
                self.make_trouble()
            self.type(host, commands)
        for command in ("tenuto coordinator", "tenuto launch"):
            process = self.stay["1", command]
            self.assertEqual(process.wait(timeout=LIMIT), 0, f"{command}: {self.logs()}")
        losses = self.losses(self.record)
        self.assertEqual([step for step, _ in losses], list(range(len(losses))))
        self.assertEqual(losses, self.undisturbed(len(losses)))


if __name__ == "__main__":
    unittest.main()
