"""Workers that are cut off, or stopped for a while, or whose clocks are wrong."""
import re
import statistics
import unittest

from harness import SILENCE, another_case
from survive_test import Survival


class Partition(Survival):
    def write_short_job(self, **more):
        self.write_job(**{"job__steps": 12, "job__checkpoint_every": 0, "job__validate_every": 0,
                          "job__validate_micros": 0, "resilience__numerics": "reproducible",
                          **more})

    def disturbed(self, **fault):
        """Trains with the fault: losses do not change. Returns the run and its longest step, ms."""
        quiet = self.train(name="quiet")
        self.add_fault(**fault)
        run = self.train(name="disturbed")
        self.assertEqual(self.losses(run), self.losses(quiet))
        return run, max(line["step_ms"] for line in run.metrics() if line["step_ms"] is not None)

    def test_a_worker_cut_off_for_a_while_continues(self):
        self.write_short_job()
        run, longest = self.disturbed(kind="partition", worker="0.1", at_step=5, for_ms=1500)
        self.assertEqual(self.told(run, "death"), [])
        self.assertGreater(longest, 1400)
        self.assertRegex(self.told(run, "fault")[0], "in step 5 worker 0.1 is cut off for 1500 ms")

    @another_case
    def test_on_a_real_clock_too(self):
        self.write_short_job(device__clock="real")
        run, longest = self.disturbed(kind="partition", worker="1.0", at_step=5, for_ms=1500)
        self.assertEqual(self.told(run, "death"), [])
        self.assertGreater(longest, 1400)

    def test_a_worker_cut_off_for_too_long_is_expelled(self):
        self.write_short_job(resilience__silence_seconds=float(SILENCE))
        run, _ = self.disturbed(kind="partition", worker="1.1", at_step=5, for_ms=60000)
        deaths = self.told(run, "death")
        self.assertEqual(len(deaths), 1, deaths)
        self.assertRegex(deaths[0], r"worker 3 .* was silent for \d+\.\d s in step [4-6]")

    def test_a_worker_stopped_for_a_while_continues(self):
        self.write_short_job()
        run, longest = self.disturbed(kind="stop", worker="0.0", at_step=5, at_op=4, for_ms=1500)
        self.assertEqual(self.told(run, "death"), [])
        self.assertGreater(longest, 1400)

    def test_clocks_may_be_wrong(self):
        self.write_job(job__steps=5000, job__checkpoint_every=0, job__validate_every=0,
                       job__validate_micros=0, parallel__stages=4, parallel__pipelines=1,
                       parallel__micros=12, parallel__order="zb-h1", optimizer__kind="sgd")
        self.add_fault(kind="clock-skew", worker="2", at_step=10, until_step=4999, skew_ms=-400)
        self.add_fault(kind="clock-skew", worker="0", skew_ms=90)
        self.add_fault(kind="slow-link", link=1, latency_ms=15, at_step=25)
        run = self.start()
        run.wait_until(lambda: run.folder.exists() and run.metrics() and run.plans_in_force()[0],
                       "a plan for the slow link")
        run.wait_for_steps(run.plans_in_force()[0][0] + 12)
        run.process.terminate()
        self.assertEqual(run.finish(), 143, run.errors)
        found = self.told(run, "detection")
        self.assertRegex(found[0], r"link 1-2 .* is slow since step 25: ")
        self.assertEqual([reason for reason in found if "link" in reason], found[:1])
        steps, reasons = run.plans_in_force()
        self.assertTrue(steps, reasons)
        times = [line["iteration_ms"] for line in run.metrics()]
        self.assertLess(min(times[steps[0] + 1:]), statistics.median(times[25:steps[0]]))

    def test_faults_injected_into_a_live_run(self):
        self.write_short_job(job__steps=5000)
        self.add_fault(kind="partition", worker="0.0", at_step=4999, for_ms=1)
        run = self.start()
        run.wait_for_steps(3)
        answers = {}
        for wish in ("partition=0.1:300ms", "clock-skew=1.0:-20ms", "stop=1.1", "resume=1.1"):
            answer = self.ask("inject", run, wish)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            answers[wish] = answer.stdout.removeprefix(f"{wish}: ").strip()
        step = int(re.fullmatch(r"in step (\d+)", answers["partition=0.1:300ms"])[1])
        self.assertRegex(answers["clock-skew=1.0:-20ms"], r"from step \d+ on")
        self.assertRegex(answers["resume=1.1"], r"done in step \d+")
        run.wait_for_steps(step + 10)
        self.assertEqual(self.told(run, "death"), [])
        for wrong, sentence in (("partition=0.1", "is not a partition"),
                                ("partition=0.1:-1ms", "is not a partition"),
                                ("clock-skew=0.1:soon", "is not a clock skew"),
                                ("partition=7.7:1ms", "there is no worker 7.7")):
            refused = self.ask("inject", run, wrong)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(sentence, refused.stderr)
        run.process.terminate()
        self.assertEqual(run.finish(), 143, run.errors)


if __name__ == "__main__":
    unittest.main()
