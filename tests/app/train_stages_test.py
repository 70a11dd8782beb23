"""Runs of real processes with server shards whose replicas have two stages each."""
import json
import statistics
import unittest

from harness import another_case, busy_case
from train_servers_test import ALL_REDUCE, Served


class Stages(Served):
    """Each replica has two stages: worker w is stage w % 2 of replica w // 2, and the two servers
    are workers 4 and 5."""

    def write_server_job(self, **more):
        super().write_server_job(**{"parallel__stages": 2, **more})

    def assert_ranges(self, run):
        """The newest checkpoint has a range of each stage."""
        folder = run.folder / f"checkpoint-{run.checkpoints()[-1]}"
        names = sorted(entry.name for entry in folder.iterdir())
        for stage in (0, 1):
            begin = f"stage-{stage}-range-0-"
            self.assertEqual(sum(name.startswith(begin) for name in names), 1, names)
        self.assertEqual(len(names), 4, names)  # with the manifest and the record

    @busy_case
    def test_synchronous_as_with_all_reduce(self):
        run = self.assert_as_all_reduce()
        self.assertEqual(self.modes(run), {"synchronous"})
        for line in run.metrics():
            self.assertEqual(line["dropped"], 0)
        self.assert_ranges(run)
        self.assertFalse(list(run.folder.glob("*.tmp")))

    @another_case
    def test_validation_as_with_all_reduce(self):
        self.need_torch()
        losses = []
        for name, more in (("all-reduce", [ALL_REDUCE]), ("servers", [])):
            run = self.train("--job.steps=10", "--job.validate_every=4", "--job.validate_micros=3",
                             *more, name=name)
            losses.append({line["step"]: line["validation_loss"] for line in run.metrics()
                           if "validation_loss" in line})
        expected, found = losses
        self.assertEqual(sorted(found), [3, 7, 9])
        for step, loss in found.items():
            self.assertAlmostEqual(loss, expected[step], delta=1e-4 * expected[step], msg=str(step))

    def test_asynchronous(self):
        self.need_torch()
        run = self.train("--sync.mode=asynchronous")
        self.assert_steps(run, 30)
        self.assert_learned(run)
        self.assertEqual(self.modes(run), {"asynchronous"})

    def test_local_steps(self):
        self.need_torch()
        mode = "synchronous+local:2"
        run = self.train(f"--sync.mode={mode}")
        self.assert_steps(run, 30)
        self.assert_learned(run)
        self.assertEqual(self.modes(run), {mode})
        self.assert_ranges(run)

    @busy_case
    def test_the_only_replica_comes_back(self):
        # No other replica makes steps meanwhile: both of its parts have to come together again.
        run = self.start_endless("--parallel.pipelines=1", "--resilience.restarts=1")
        run.wait_for_steps(3)
        status = json.loads(self.ask("status", run, "--json").stdout)
        self.assertEqual([one["stage"] for one in status["processes"]], [0, 1, None, None])
        answer = self.ask("inject", run, "kill=0.1")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        run.wait_until(lambda: any("takes part" in reason for reason in self.told(run, "join")),
                       "the process that is started again")
        run.wait_for_steps(len(run.metrics()) + 10)
        workers = run.workers()
        self.interrupt(run)
        self.assert_gone(workers)
        steps = [line["step"] for line in run.metrics()]
        self.assertEqual(steps, list(range(len(steps))))
        deaths = self.told(run, "death")
        self.assertEqual(len(deaths), 1, run.events())
        self.assertIn("worker 1 (replica 0, stage 1)", deaths[0])

    @busy_case
    @another_case
    def test_a_part_of_one_of_two_replicas_comes_back(self):
        self.come_back(2, total=6)

    @busy_case
    def test_the_server_with_the_decider_is_lost(self):
        # Another decider gives all works out again, so all replicas form anew.
        self.need_torch()
        run = self.start("--job.steps=200", "--resilience.restarts=1")
        run.wait_for_steps(3)
        workers = run.workers()
        self.assertTrue(self.kill(run, 4))
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_gone(workers)
        self.assert_steps(run, 200)
        self.assert_learned(run)
        self.assertEqual(len(self.told(run, "death")), 1, run.events())
        self.assert_audited(run)

    @busy_case
    def test_a_stopped_run_goes_on(self):
        constant = "--optimizer.schedule=constant"
        run = self.start_endless(constant)
        run.wait_for_steps(20)
        self.interrupt(run)
        lines = run.metrics()
        steps = len(lines)
        self.assertEqual(run.checkpoints(), [steps])
        more = f"--job.steps={steps + 10}"
        refused = self.train("--resume", constant, more, "--parallel.stages=1", expected=2)
        self.assertIn("parallel.stages = 2, the job says 1", refused.errors)
        again = self.train("--resume", constant, more)
        self.assert_steps(again, steps + 10)
        self.assertEqual(again.metrics()[:steps], lines)
        before = [line["loss"] for line in lines if line["loss"] is not None]
        later = [line["loss"] for line in again.metrics()[steps:] if line["loss"] is not None]
        self.assertLess(max(later), (before[0] + statistics.mean(before[-5:])) / 2)
        printed = self.ask("sample", again, "--prompt", "7 and ", "--bytes", "10")
        self.assertNotEqual(printed.returncode, 0)
        self.assertIn("2 stages", printed.stderr)


if __name__ == "__main__":
    unittest.main()
