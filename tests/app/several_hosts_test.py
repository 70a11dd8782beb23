"""docs/several-hosts.md, typed from its first line: two hosts, a token file, certificates, etcd."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import unittest

import namespaces_test
from harness import Case, KILL, LIMIT, TENUTO, alive
from namespaces_test import CLUSTER, cluster

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "several-hosts.md"
FOLDER = "/srv/tenuto"  # the guide's folder that all hosts see
HOSTS = {"A": "0", "B": "1"}


def setUpModule():
    for program in ("etcd", "openssl"):
        if shutil.which(program) is None:
            raise unittest.SkipTest(f"there is no program {program}")
    namespaces_test.setUpModule()


def blocks():
    """The guide's blocks in order: host, whether it stays in the foreground, commands."""
    for block in re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.M | re.S):
        first, commands = block.split("\n", 1)
        host = re.fullmatch(r"# host ([AB])(, stays in the foreground)?", first)
        yield HOSTS[host[1]], host[2] is not None, commands


class Guide(Case):
    def setUp(self):
        super().setUp()
        self.need_torch()
        cluster("up", 2, 1000)
        self.addCleanup(cluster, "down")
        text = self.folder / "text"
        text.mkdir()
        (text / "all.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 400)
        self.processes = {}
        self.record = self.folder / "runs" / "pair"

    def shell(self, host, commands):
        """The command line that runs the commands on the host."""
        commands = commands.replace(FOLDER, str(self.folder))
        path = f"{pathlib.Path(TENUTO).parent}:{os.environ['PATH']}"
        return [CLUSTER, "exec", host, "env", f"PATH={path}", "sh", "-ec", commands]

    def stay(self, name, host, commands):
        self.processes[name] = (host, commands)
        log = open(self.folder / f"{name}.log", "a")
        self.addCleanup(log.close)
        process = subprocess.Popen(self.shell(host, "exec " + commands.lstrip()), stdout=log,
                                   stderr=log, stdin=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def until(self, what, question):
        end = time.monotonic() + LIMIT
        while not question():
            logs = {log.name: log.read_text()[-2000:] for log in self.folder.glob("*.log")}
            self.assertLess(time.monotonic(), end, f"never: {what}: {logs}")
            time.sleep(0.05)

    def steps(self):
        try:
            return (self.record / "metrics.jsonl").read_text().count("\n")
        except FileNotFoundError:
            return 0

    def told(self, words):
        try:
            events = (self.record / "events.jsonl").read_text()
        except FileNotFoundError:
            return False
        return words in events

    def go_on(self):
        count = self.steps()
        self.until("further steps", lambda: self.steps() > count + 2)

    def test_from_its_first_line(self):
        started = []
        for host, stays, commands in blocks():
            if stays:
                name = re.search(r"--worker (\d)", commands)
                name = f"worker-{name[1]}" if name else commands.split()[0]
                started.append((name, self.stay(name, host, commands)))
                if name == "tenuto":  # the workers need the token file
                    token = self.folder / "private" / "token"
                    self.until("a token", token.exists)
                continue
            if "tenuto status" in commands:
                self.until("the first steps", lambda: self.steps() > 2)
            done = subprocess.run(self.shell(host, commands), text=True, capture_output=True,
                                  timeout=LIMIT)
            self.assertEqual(done.returncode, 0, done.stderr)
            if "tenuto status" in commands:
                self.assertIn("running", done.stdout)
        run = dict(started)
        self.until("the wish", lambda: self.told("asked for a checkpoint"))

        # A worker dies and is started again.
        run["worker-3"].send_signal(KILL)
        self.until("the loss", lambda: self.told("the run continues without it"))
        run["worker-3"] = self.stay("worker-3", *self.processes["worker-3"])
        self.until("the return", lambda: self.told("has the state of version"))

        # The launcher of the coordinator dies too, with all the processes it has started.
        run["tenuto"].send_signal(KILL)
        run["tenuto"].wait()
        run["tenuto"] = self.stay("tenuto", *self.processes["tenuto"])
        self.until("a new coordinator", lambda: self.told("a new coordinator continues the run"))
        self.go_on()
        for number in range(4):
            self.assertTrue(alive(run[f"worker-{number}"].pid), f"worker {number}")

        # A user stops the run. Workers end with 75: start them again when the run is resumed.
        run["tenuto"].terminate()
        self.assertEqual(run["tenuto"].wait(timeout=LIMIT), 143)
        for number in range(4):
            self.assertEqual(run[f"worker-{number}"].wait(timeout=LIMIT), 75)
        log = (self.folder / "tenuto.log").read_text()
        self.assertRegex(log, r"continue with: tenuto coordinator \S+ --token-file \S+ --resume")
        self.assertNotIn("handshake", "".join(f.read_text() for f in self.folder.glob("*.log")))


if __name__ == "__main__":
    unittest.main()
