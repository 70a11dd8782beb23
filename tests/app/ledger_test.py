"""Jobs with real processes that share one host, and say so in a ledger."""
import os
import re
import signal
import threading
import unittest

from harness import KILL, STOP, another_case
from restart_test import children_of
from train_servers_test import Served

ANSWER = re.compile(r"the job may (not )?leave the synchronous mode: host \S+: .+")


class SlowProcess(threading.Thread):
    """Lets a process run for a tenth of the time only."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process = process
        self.over = threading.Event()

    def run(self):
        try:
            while not self.over.wait(0.01):
                os.kill(self.process, STOP)
                self.over.wait(0.09)
                os.kill(self.process, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def end(self):
        self.over.set()
        self.join()


class Ledger(Served):
    def setUp(self):
        super().setUp()
        self.ledger = self.folder / "ledger"

    def share(self, *arguments, name):
        """An endless run that names the ledger."""
        return self.start_endless(f"--sync.ledger={self.ledger}", *arguments, name=name)

    def entries(self):
        """The processes of the jobs that the ledger knows."""
        if not self.ledger.exists():
            return set()
        return {int(line.split()[1]) for line in self.ledger.read_text().splitlines()
                if line.startswith("job ")}

    def coordinator(self, run):
        """The process of a run's coordinator: the only child of the launcher that is no worker."""
        found = [process for process, words in children_of(run.process.pid).items()
                 if "--parent" not in words]
        self.assertEqual(len(found), 1)
        return found[0]

    def assert_no_entries(self):
        self.assertEqual(self.entries(), set())
        self.assertNotIn("process ", self.ledger.read_text())

    def test_a_job_asks_before_it_leaves_synchrony(self):
        first = self.share(name="first")
        second = self.share("--sync.mode=auto", name="second")
        both = (first, second)
        for run in both:
            run.wait_for_steps(3)
        pair = {self.coordinator(run) for run in both}
        second.wait_until(lambda: self.entries() == pair, "both have announced their use")
        slow = SlowProcess(second.workers()[1])
        slow.start()
        self.addCleanup(slow.end)
        second.wait_until(lambda: any(map(ANSWER.fullmatch, self.told(second, "lease"))),
                          "it has asked")
        answer = next(filter(ANSWER.fullmatch, self.told(second, "lease")))
        if "may not" not in answer:
            second.wait_until(lambda: self.told(second, "mode"), "it uses its lease")
        slow.end()
        for run in both:
            self.interrupt(run)
        self.assert_asked_first(second)
        # The first one had no reason to ask.
        self.assertEqual(self.modes(first), {"synchronous"})
        self.assertFalse(any(map(ANSWER.fullmatch, self.told(first, "lease"))))
        self.assert_no_entries()

    def assert_asked_first(self, run):
        """The mode was synchronous until a lease was granted."""
        self.assertEqual(run.metrics()[0]["mode"], "synchronous")
        may_leave = False
        for event in run.events():
            answer = ANSWER.fullmatch(event["reason"]) if event["event"] == "lease" else None
            may_leave = may_leave or bool(answer and not answer[1])
            if event["event"] == "mode" and not event["reason"].startswith(
                    "sync mode synchronous"):
                self.assertTrue(may_leave, run.account())

    def test_entries_of_a_killed_coordinator_are_removed(self):
        run = self.share(name="killed")
        run.wait_for_steps(3)
        process = self.coordinator(run)
        run.wait_until(lambda: self.entries() == {process}, "it has announced its use")
        os.kill(process, KILL)
        self.assertEqual(run.finish(), 75, run.errors)
        self.assertEqual(self.entries(), {process}, "nobody has removed it")
        other = self.share(name="other")
        other.wait_for_steps(3)
        other.wait_until(lambda: self.entries() == {self.coordinator(other)},
                         "the entry of the killed one is gone")
        self.interrupt(other)
        self.assert_no_entries()

    @another_case
    def test_a_wanted_mode_is_not_asked_for(self):
        run = self.share("--sync.mode=auto", name="wanted")
        run.wait_for_steps(3)
        self.assertEqual(self.ask("inject", run, "sync.mode=asynchronous").returncode, 0)
        run.wait_until(lambda: run.metrics()[-1]["mode"] == "asynchronous", "the mode is in force")
        self.assertEqual(self.ask("inject", run, "sync.mode=auto").returncode, 0)
        run.wait_until(lambda: any("may not take more of its host" in reason
                                   for reason in self.told(run, "mode")),
                       "the mode is synchronous again")
        self.interrupt(run)
        self.assert_no_entries()

    def test_another_file_is_refused(self):
        self.need_torch()
        self.ledger.write_text("[job]\n")
        run = self.train(f"--sync.ledger={self.ledger}", expected=1)
        self.assertIn(f"{self.ledger}: line 1: expected", run.errors)
        self.assertEqual(self.ledger.read_text(), "[job]\n")


if __name__ == "__main__":
    unittest.main()
