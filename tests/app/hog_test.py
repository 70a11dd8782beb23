"""Hogs: real processes that take resources of a worker's host and end with who started them."""
import os
import pathlib
import subprocess
import sys
import time
import unittest

from harness import LIMIT, TENUTO, alive, another_case, busy_case
from restart_test import children_of
from train_servers_test import ALL_REDUCE, Served

# The launcher's choice: the worker's program without torch, if there is one of its own.
PROGRAMS = [pathlib.Path(TENUTO).parent / name for name in ("tenuto-worker-paced", "tenuto-worker")]
WORKER = next((str(program) for program in PROGRAMS if program.exists()), None)
# A parent that starts a hog, tells its number, and waits until it is killed.
PARENT = """
import os, signal, subprocess, sys
hog = subprocess.Popen([*sys.argv[1:], "--parent", str(os.getpid())])
print(hog.pid, flush=True)
signal.pause()
"""


def wait_until(done, what):
    end = time.monotonic() + LIMIT
    while not done():
        if time.monotonic() > end:
            raise AssertionError(f"not within {LIMIT} s: {what}")
        time.sleep(0.01)


def status_of(process, field):
    """A line of /proc/N/status; empty if the process is gone."""
    try:
        lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), "")


@unittest.skipIf(WORKER is None, "this build has no worker")
class Program(unittest.TestCase):
    """`tenuto-worker hog`, without a run around it."""

    def hog(self, *arguments):
        return subprocess.run([WORKER, "hog", *arguments], capture_output=True, text=True,
                              timeout=LIMIT)

    def test_ends_after_its_time(self):
        for words in (["--threads", "2"], ["--device", "lo"],
                      ["--device", "lo", "--megabytes-per-second", "5"]):
            ended = self.hog(*words, "--for-ms", "50")
            self.assertEqual(ended.returncode, 0, f"{words}: {ended.stderr}")

    def test_refuses_what_is_not_there(self):
        ended = self.hog("--device", "no-such-device", "--for-ms", "50")
        self.assertEqual(ended.returncode, 1)
        self.assertIn('network.device = "no-such-device" is no network device', ended.stderr)
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        ended = self.hog("--threads", "1", "--like", str(gone.pid), "--for-ms", "50")
        self.assertEqual(ended.returncode, 1)
        self.assertIn(f"cannot compute on the processors of process {gone.pid}", ended.stderr)

    def test_ends_with_its_parent(self):
        for words in (["--threads", "2"], ["--device", "lo", "--megabytes-per-second", "1"]):
            parent = subprocess.Popen([sys.executable, "-c", PARENT, WORKER, "hog", *words],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.addCleanup(parent.stdout.close)
            self.addCleanup(parent.kill)
            hog = int(parent.stdout.readline())
            # Once it has threads beside its first one it has begun, and is tied to its parent.
            wait_until(lambda: int(status_of(hog, "Threads") or 0) > 1, f"{words} begins")
            parent.kill()
            parent.wait()
            wait_until(lambda: not alive(hog), f"{words} ends with its parent")

    # Sanitizers have threads of their own, with other processors.
    @another_case
    def test_uses_the_processors_of_another_process(self):
        first = min(os.sched_getaffinity(0))
        like = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"],
                                preexec_fn=lambda: os.sched_setaffinity(0, {first}))
        self.addCleanup(like.wait)
        self.addCleanup(like.kill)
        hog = subprocess.Popen([WORKER, "hog", "--threads", "2", "--like", str(like.pid)])
        self.addCleanup(hog.wait)
        self.addCleanup(hog.kill)
        wait_until(lambda: int(status_of(hog.pid, "Threads") or 0) == 3, "it computes")
        for task in pathlib.Path(f"/proc/{hog.pid}/task").iterdir():
            self.assertEqual(os.sched_getaffinity(int(task.name)), {first})


class Runs(Served):
    """Runs on real devices with hogs."""

    def setUp(self):
        super().setUp()
        self.need_torch()

    def hogs(self, run):
        """The hogs of the run, by process."""
        found = children_of(run.process.pid)
        return {process: words for process, words in found.items() if words[1:2] == ["hog"]}

    def wait_for_hogs(self, run, count):
        run.wait_until(lambda: len(self.hogs(run)) == count, f"{count} hogs")
        return self.hogs(run)

    def told_hogs(self, run):
        return [reason for reason in self.told(run, "fault") if "hog" in reason]

    def injected_while_it_runs(self, *arguments):
        """A hog begins and ends on request, another one ends with the run. Which steps are slow
        depends on the machine, so that is not asked."""
        run = self.start_endless(*arguments)
        run.wait_for_steps(2)
        answer = self.ask("inject", run, "cpu-hog=1:2")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        (words,) = self.wait_for_hogs(run, 1).values()
        self.assertEqual(words[words.index("--threads") + 1], "2")
        self.assertEqual(words[words.index("--like") + 1], str(run.workers()[1]))
        answer = self.ask("inject", run, "cpu-hog=1:off")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.wait_for_hogs(run, 0)
        answer = self.ask("inject", run, "bandwidth-hog=0:5MB")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        hogs = dict.fromkeys(self.wait_for_hogs(run, 1))
        run.wait_for_steps(len(run.metrics()) + 2)
        self.interrupt(run)
        self.assert_gone({process: process for process in hogs})
        self.assertEqual(self.told_hogs(run),
                         ["requested: a hog of 2 threads computes on the host of worker 1",
                          "requested: the cpu-hog beside worker 1 ends",
                          "requested: a hog on the host of worker 0 sends itself 5 MB/s"])
        self.assertEqual([line["step"] for line in run.metrics()], list(range(len(run.metrics()))))

    @busy_case
    def test_injected_into_a_synchronous_run(self):
        self.injected_while_it_runs(ALL_REDUCE)

    @busy_case
    def test_injected_into_a_run_with_server_shards(self):
        self.injected_while_it_runs()

    def of_the_job(self, *arguments):
        """A hog of the job begins and ends with steps of its own; the losses are the same."""
        undisturbed = self.train(*arguments, name="undisturbed")
        self.add_fault(kind="cpu-hog", worker="1", threads=1, at_step=5, until_step=15)
        run = self.train(*arguments, name="disturbed")
        self.assertEqual(self.told_hogs(run),
                         ["injected fault: from step 5 on a hog of 1 thread computes on the host "
                          "of worker 1",
                          "injected fault ends at step 15: a hog of 1 thread computes on the host "
                          "of worker 1"])
        self.assertEqual(len(run.metrics()), len(undisturbed.metrics()))
        return undisturbed, run

    @busy_case
    def test_of_a_job_that_trains_synchronously(self):
        undisturbed, run = self.of_the_job(ALL_REDUCE)
        self.assertEqual(self.losses(run), self.losses(undisturbed))

    @busy_case
    def test_of_a_job_with_server_shards(self):
        self.of_the_job()

    @busy_case
    def test_ends_when_the_launcher_is_killed(self):
        run = self.start_endless(ALL_REDUCE)
        run.wait_for_steps(1)
        answer = self.ask("inject", run, "cpu-hog=0:1")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        hogs = self.wait_for_hogs(run, 1)
        run.process.kill()
        self.assert_gone({process: process for process in hogs})

    def test_without_a_launcher_of_its_own_a_job_with_a_hog_is_refused(self):
        self.add_fault(kind="cpu-hog", worker="1", threads=1)
        run = self.start(command="coordinator", environment={"TENUTO_TOKEN": "a-token-of-a-test"})
        self.assertEqual(run.finish(), 2, run.errors)
        self.assertIn('fault[0].kind "cpu-hog": a hog is started only on the host of', run.errors)


if __name__ == "__main__":
    unittest.main()
