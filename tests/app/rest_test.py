"""A worker dies in a step, and the others run only the ops that are left of that step."""
import os
import re
import unittest

from harness import KILL, another_case
from restart_test import children_of
from survive_test import Survival

LEFT = re.compile(r"(\d+) ops are left of (\d+)")


class LeftOver(Survival):
    """Runs that lose workers, compared with self.undisturbed, a run without deaths."""

    def shares(self, run):
        """For each step that went on after a death: the share of its ops that was left to run."""
        found = [LEFT.search(reason) for reason in self.told(run, "recovery")
                 if "continues without" in reason]
        return [int(match[1]) / int(match[2]) for match in found]

    def assert_went_on(self, run, deaths=1):
        """Each step in which a worker died went on and was not started again."""
        self.assertEqual(len(self.told(run, "death")), deaths, self.told(run, "death"))
        self.assertEqual(len(self.shares(run)), deaths, self.told(run, "recovery"))
        for share in self.shares(run):
            self.assertLess(share, 0.8)
        if deaths == 1:  # a second death may come when all sums are complete
            self.assertGreater(self.shares(run)[0], 0)

    def assert_same(self, run):
        """All steps, each once, with the very numbers of the run without deaths."""
        for key in ("step", "loss", "gradient_norm", "validation_loss"):
            self.assertEqual([line.get(key) for line in run.metrics()],
                             [line.get(key) for line in self.undisturbed.metrics()], key)
        self.assertEqual(run.checkpoints()[-1], 6)


class Rest(LeftOver):
    def setUp(self):
        super().setUp()
        self.write_job(parallel__pipelines=3, parallel__micros=4, job__steps=6,
                       job__validate_every=3, job__checkpoint_every=3,
                       resilience__numerics="reproducible",
                       **{f"device__{op}_ms": [20.0]
                          for op in ("forward", "backward_input", "backward_weight")})
        self.undisturbed = self.train(name="undisturbed")

    def test_a_step_goes_on_with_what_is_left(self):
        self.add_fault(kind="kill", worker="1.1", at_step=2, at_op=18)
        run = self.train()
        self.assert_same(run)
        self.assert_went_on(run)
        hit = run.metrics()[2]
        # Workers that ran only the rest of the step do not report when it began.
        self.assertNotIn("iteration_ms", hit)
        periods = [line.get("period_ms") for line in run.metrics()]
        # bench/death_cost.py measures how much longer: the pause depends on the real clock.
        self.assertGreater(hit["period_ms"], min(periods[1:2] + periods[3:]))
        self.assertIn("iteration_ms", run.metrics()[3])

    def test_two_die_in_one_step(self):
        # The second one has finished some ops before the first dies: these stay finished.
        self.add_fault(kind="kill", worker="0.1", at_step=2, at_op=10)
        self.add_fault(kind="kill", worker="2.0", at_step=2, at_op=22)
        run = self.train()
        self.assertEqual(len(self.told(run, "death")), 2, self.told(run, "death"))
        self.assert_same(run)
        self.assertEqual(len(self.shares(run)), 2, self.told(run, "recovery"))

    def test_steps_ahead_of_the_norm_are_done_again(self):
        self.add_fault(kind="kill", worker="1.1", at_step=2, at_op=9)
        run = self.train("--parallel.optimizer=staggered")
        self.assert_same(run)
        self.assertEqual(self.shares(run), [])
        self.assertTrue(any("is done again without" in reason
                            for reason in self.told(run, "recovery")))

    def test_the_coordinator_dies_while_the_rest_is_under_way(self):
        self.add_fault(kind="kill", worker="1.1", at_step=2, at_op=5)
        # Ops so long that the rest of the step is still under way when the coordinator is killed.
        run = self.start(*[f"--device.{op}_ms=[200.0]"
                           for op in ("forward", "backward_input", "backward_weight")])
        run.wait_for_steps(1)
        run.wait_until(lambda: self.shares(run), "a step goes on with what is left")
        for process, words in children_of(run.process.pid).items():
            if "--parent" not in words:
                os.kill(process, KILL)
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assertEqual(len(self.told(run, "death")), 1)
        self.assert_same(run)
        # The next coordinator has begun an epoch and found the rest of the step again.
        self.assertEqual(len(self.shares(run)), 2, self.told(run, "recovery"))
        self.assertEqual(run.metrics()[2]["epoch"], 3)

    @another_case
    def test_workers_with_several_stages_go_on(self):
        self.undisturbed = self.train("--parallel.order=zb-v", name="several")
        self.add_fault(kind="kill", worker="1.1", at_step=2, at_op=30)
        run = self.train("--parallel.order=zb-v")
        self.assert_same(run)
        self.assert_went_on(run)


class Engine(LeftOver):
    """Three pipelines of two stages train a real model and lose workers."""

    def setUp(self):
        super().setUp()
        self.need_torch()
        self.write_job(parallel__pipelines=3, parallel__micros=4, parallel__micro_rows=4,
                       parallel__order="zb-h1", job__steps=6, job__validate_every=3,
                       job__checkpoint_every=3, device__kind="cpu",
                       data__paths=[self.write_text()], model__layers=4, model__width=64,
                       model__heads=4, model__sequence=64, model__dropout=0.1,
                       optimizer__warm_up_steps=2, resilience__numerics="reproducible")

    def lose(self, *arguments, deaths=1):
        """Trains without faults (self.undisturbed), then with those of the job; the latter run."""
        whole = self.job.read_text()
        self.job.write_text(whole.split("[[fault]]")[0])
        self.undisturbed = self.train(*arguments, name="undisturbed")
        self.job.write_text(whole)
        run = self.train(*arguments)
        self.assert_went_on(run, deaths)
        return run

    def test_a_step_goes_on_with_the_same_bits(self):
        self.add_fault(kind="kill", worker="1.1", at_step=2, at_op=18)
        run = self.lose()
        self.assert_same(run)
        self.assert_same_bits(run, self.undisturbed, 6)

    @another_case
    def test_a_whole_backward_continues_with_the_same_bits(self):
        self.add_fault(kind="kill", worker="2.0", at_step=2, at_op=14)
        run = self.lose("--parallel.order=1f1b", "--parallel.split_backward=false")
        self.assert_same(run)
        self.assert_same_bits(run, self.undisturbed, 6)

    def test_two_die_in_one_step(self):
        self.add_fault(kind="kill", worker="0.1", at_step=2, at_op=10)
        self.add_fault(kind="kill", worker="2.0", at_step=2, at_op=22)
        run = self.lose(deaths=2)
        self.assert_same(run)

    @another_case
    def test_workers_with_several_stages_go_on(self):
        self.add_fault(kind="kill", worker="1.1", at_step=2, at_op=30)
        run = self.lose("--parallel.order=zb-v")
        self.assert_same(run)
        self.assert_same_bits(run, self.undisturbed, 6)

    @another_case
    def test_plain_sums_stay_within_their_bound(self):
        self.add_fault(kind="kill", worker="1.1", at_step=2, at_op=18)
        run = self.lose("--resilience.numerics=fast")
        self.assert_whole(run, 6, self.losses(self.undisturbed))


if __name__ == "__main__":
    unittest.main()
