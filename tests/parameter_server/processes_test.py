"""Real processes train with server shards: four replicas, two servers and a decider. One of them is
killed and comes back, and the run's own audit finds each micro-batch in one place and the same bits
in all keepers."""
import os
import shutil
import signal
import subprocess
import time
import unittest

PROGRAM = os.environ["TENUTO_SERVER_PROCESSES"]
SCENARIO = "four-slow-link"
LIMIT = 120


def another_case(method):
    """Left out of sanitized builds (cmake/tenuto.cmake reads the mark)."""
    return method


def children_of(process):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == process and state != "Z":
            found.append(int(name))
    return found


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def folder_of(process):
    """The run's folder, in which the process writes."""
    try:
        for descriptor in os.listdir(f"/proc/{process}/fd"):
            path = os.readlink(f"/proc/{process}/fd/{descriptor}")
            if "/tenuto-bench-" in path:
                return os.path.dirname(path)
    except OSError:
        pass
    return None


class Processes(unittest.TestCase):
    def run_one(self, mode, *kills, seconds=2):
        run = subprocess.run([PROGRAM, SCENARIO, mode, "2", str(seconds), *kills], text=True,
                             capture_output=True, timeout=LIMIT, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        words = run.stdout.split()
        self.assertEqual(words[::2], ["updates", "epochs"], run.stdout)
        updates, epochs = int(words[1]), int(words[3])
        self.assertGreater(updates, 0)
        return epochs

    @another_case
    def test_nobody_is_killed(self):
        self.assertEqual(self.run_one("synchronous", seconds=1), 1)

    def test_a_server_shard_is_killed(self):
        self.assertEqual(self.run_one("asynchronous", "shard:0.4"), 3)

    @another_case
    def test_a_standby_is_killed(self):
        self.assertEqual(self.run_one("grace:2", "standby:0.4"), 3)

    @another_case
    def test_a_replica_is_killed(self):
        self.assertEqual(self.run_one("backup:3", "replica:0.4"), 3)

    def test_the_decider_is_killed(self):
        # A server decides then, and the process that comes back waits until it has to.
        self.assertEqual(self.run_one("look-ahead", "decider:0.4"), 2)

    @another_case
    def test_a_standby_and_the_decider_are_killed_together(self):
        # Each loss is an epoch, and the server that comes back is one; the decider changes nothing.
        self.assertEqual(self.run_one("asynchronous", "standby:0.4", "decider:0.4"), 4)

    @another_case
    def test_what_cannot_be_run_is_refused(self):
        for words, sentence in [
                (["asynchronous+local:2", "2", "1"],
                 "processes run fixed modes without local steps"),
                (["synchronous", "1", "1"], "needs 2 to 8 servers, found 1"),
                (["synchronous", "9", "1"], "needs 2 to 8 servers, found 9"),
                (["synchronous", "2", "1", "shard:2"], "a kill after 2 s in a run of 1 s"),
                (["synchronous", "2", "1", "keeper:1"],
                 "expected shard, standby, replica or decider")]:
            run = subprocess.run([PROGRAM, SCENARIO, *words], text=True, capture_output=True,
                                 timeout=LIMIT, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertIn(sentence, run.stderr)

    def test_none_outlives_its_parent(self):
        run = subprocess.Popen([PROGRAM, SCENARIO, "synchronous", "2", "60"],
                               stdout=subprocess.DEVNULL)
        self.addCleanup(run.kill)
        end = time.monotonic() + LIMIT
        children, folder = [], None
        while (len(children) < 7 or folder is None) and time.monotonic() < end:
            time.sleep(0.02)
            children = children_of(run.pid)
            folder = folder_of(children[0]) if children else None
        self.assertEqual(len(children), 7)
        self.addCleanup(shutil.rmtree, folder)
        run.send_signal(signal.SIGKILL)
        run.wait(LIMIT)
        while any(map(is_alive, children)) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertFalse(any(map(is_alive, children)))


if __name__ == "__main__":
    unittest.main()
