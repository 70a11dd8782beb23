"""Runs of real processes in other modes than synchronous, without servers: the replicas keep the
parameters themselves."""
import json
import os
import unittest

from harness import KILL, another_case, busy_case
from train_servers_test import REPLICAS, STATE, SYNCHRONOUS, Served

# Replicas 0 and 1 are the ring. The others are children, which keep no parameters.
RING_OF_THREE = "ring:2:0,1,0"
RING_OF_FOUR = "ring:2:0,1,0,1"


class Peers(Served):
    """Two replicas of which both are in each update, as in synchronous training."""

    def write_server_job(self, **more):
        super().write_server_job(**{"sync__architecture": "all-reduce", "sync__mode": "x:2",
                                    **more})

    def newest_files(self, run):
        """The names of the files in the newest checkpoint."""
        folder = run.folder / f"checkpoint-{run.checkpoints()[-1]}"
        return sorted(entry.name for entry in folder.iterdir())

    def kept(self, run):
        """How many ranges of the parameters each worker keeps; empty = the run does not say."""
        status = self.ask("status", run, "--json")
        if status.returncode != 0:
            return []
        return [one["ranges"] for one in json.loads(status.stdout)["processes"]]

    def want(self, run, mode):
        answer = self.ask("inject", run, f"sync.mode={mode}")
        self.assertEqual(answer.returncode, 0, answer.stderr)

    def wait_for_mode(self, run, mode):
        run.wait_until(lambda: run.metrics()[-1]["mode"] == mode, f"{mode} is in force")

    def wait_for_deaths(self, run, count):
        run.wait_until(lambda: len(self.told(run, "death")) == count, f"death {count}")

    def assert_nothing_dropped(self, run):
        for line in run.metrics():
            self.assertEqual(line["dropped"], 0, str(line))


class PeerModes(Peers):
    @busy_case
    def test_all_gradients_in_each_update_as_synchronous(self):
        run = self.assert_as_all_reduce()
        self.assertEqual(self.modes(run), {"x:2"})
        self.assert_nothing_dropped(run)
        files = self.newest_files(run)
        spans = sorted((int(found[1]), int(found[2])) for found in map(STATE.fullmatch, files)
                       if found)
        self.assertEqual(len(spans), REPLICAS, files)
        self.assertEqual([begin for begin, _ in spans], [0, *(end for _, end in spans[:-1])])
        self.assertIn("record.state", files)
        self.assertFalse(list(run.folder.glob("*.tmp")))
        self.assertIn("2 replicas", run.output)
        self.assertNotIn("2 replicas,", run.output)  # no servers are named

    def test_asynchronous(self):
        self.need_torch()
        run = self.train("--sync.mode=asynchronous")
        self.assert_steps(run, 30)
        self.assert_learned(run)
        self.assertEqual(self.modes(run), {"asynchronous"})
        self.assert_nothing_dropped(run)
        self.assertGreaterEqual(run.checkpoints()[-1], 30)

    @busy_case
    def test_a_ring_keeps_the_parameters_while_it_is_in_force(self):
        run = self.start_endless("--parallel.pipelines=3", f"--sync.mode={RING_OF_THREE}")
        run.wait_for_steps(3)
        # Each replica has a range, and each range two keepers.
        run.wait_until(lambda: self.kept(run) == [3, 3, 0], "the ring keeps all ranges")
        told = self.ask("status", run)
        self.assertIn("parameters are kept by worker 0, worker 1\n", told.stdout)
        self.want(run, "asynchronous")
        self.wait_for_mode(run, "asynchronous")
        run.wait_until(lambda: min(self.kept(run), default=0) > 0, "all replicas keep a range")
        self.want(run, RING_OF_THREE)
        self.wait_for_mode(run, RING_OF_THREE)
        run.wait_until(lambda: self.kept(run) == [3, 3, 0], "the ring has all ranges again")
        run.wait_for_steps(max(30, len(run.metrics()) + 10))
        self.interrupt(run)
        self.assert_steps(run, len(run.metrics()))
        self.assert_learned(run)
        self.assert_nothing_dropped(run)
        self.assertEqual(self.told(run, "death"), [])


class PeersKilled(Peers):
    @busy_case
    def test_the_replica_with_the_decider(self):
        # The mode is chosen while the run goes on, by another process from then on.
        self.need_torch()
        run = self.start("--job.steps=200", "--sync.mode=auto", "--optimizer.schedule=constant")
        run.wait_for_steps(3)
        workers = run.workers()
        self.assertEqual(sorted(workers), list(range(REPLICAS)))
        self.assertTrue(self.kill(run, 0))
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_gone(workers)
        self.assert_steps(run, 200)
        self.assert_learned(run)
        self.assertEqual(len(self.told(run, "death")), 1, run.events())
        self.assertGreaterEqual(run.checkpoints()[-1], 200)

    @busy_case
    def test_a_child_and_then_a_member_of_the_ring(self):
        run = self.start_endless("--parallel.pipelines=4", f"--sync.mode={RING_OF_FOUR}")
        run.wait_for_steps(3)
        workers = run.workers()
        for deaths, worker in ((1, 3), (2, 1)):
            self.assertTrue(self.kill(run, worker))
            self.wait_for_deaths(run, deaths)
            run.wait_for_steps(len(run.metrics()) + 20)
        self.interrupt(run)
        self.assert_gone(workers)
        self.assert_steps(run, len(run.metrics()))
        self.assert_learned(run)

    @busy_case
    @another_case
    def test_the_decider_in_a_change_of_the_mode(self):
        run = self.start_endless("--parallel.pipelines=3", "--sync.mode=asynchronous")
        run.wait_for_steps(3)
        self.want(run, RING_OF_THREE)
        self.assertTrue(self.kill(run, 0))
        self.wait_for_deaths(run, 1)
        self.wait_for_mode(run, RING_OF_THREE)
        run.wait_for_steps(len(run.metrics()) + 10)
        self.interrupt(run)
        self.assert_steps(run, len(run.metrics()))

    @busy_case
    def test_a_replica_comes_back(self):
        self.come_back(1, total=REPLICAS)

    def test_without_keepers_the_run_ends_resumably(self):
        run = self.start_endless()
        run.wait_for_steps(3)
        workers = run.workers()
        for process in workers.values():
            os.kill(process, KILL)
        self.assertEqual(run.finish(), 75, f"{run.errors}{self.logs(run)}")
        self.assertIn("of the parameters are lost", run.errors)
        self.assertIn("tenuto train", run.errors)  # how to continue
        self.assert_gone(workers)


class PeerStages(Peers):
    """Each replica has two stages: worker w is stage w % 2 of replica w // 2, and keeps ranges of
    this stage."""

    def write_server_job(self, **more):
        super().write_server_job(**{"parallel__stages": 2, "sync__mode": "rebalanced:2,2", **more})

    @busy_case
    def test_all_gradients_in_each_update_as_synchronous(self):
        run = self.assert_as_all_reduce()
        self.assertEqual(self.modes(run), {"rebalanced:2,2"})
        files = self.newest_files(run)
        for stage in (0, 1):
            ranges = [name for name in files if name.startswith(f"stage-{stage}-range-")]
            self.assertEqual(len(ranges), REPLICAS, files)

    @busy_case
    def test_the_part_with_the_decider_comes_back(self):
        # The other part of its replica waits for it, and keeps its ranges meanwhile.
        self.come_back(0, total=4)


class PeersResumed(Peers):
    @busy_case
    def test_with_and_without_servers(self):
        self.need_torch()
        constant = "--optimizer.schedule=constant"
        expected = self.losses(self.train(constant, *SYNCHRONOUS, name="synchronous"))
        servers = ("--sync.architecture=servers", "--sync.mode=synchronous")
        for steps, how in ((10, servers), (20, ()), (30, servers)):
            more = ["--resume"] if steps > 10 else []
            run = self.train(constant, *more, f"--job.steps={steps}", *how)
            self.assert_steps(run, steps)
            self.assertEqual(run.checkpoints()[-1], steps)
        for begin in (0, 10, 20):
            losses = [(line["step"], line["loss"]) for line in run.metrics()[begin:begin + 10]]
            known = [(step, loss) for step, loss in losses if loss is not None and expected[step]]
            self.assertGreaterEqual(len(known), 5, losses)
            for step, loss in known:
                self.assertAlmostEqual(loss, expected[step], delta=1e-4 * expected[step],
                                       msg=f"step {step}")
        # The checkpoint of a run without ranges has another form.
        refused = self.train("--resume", "--job.steps=40", name="synchronous", expected=2)
        self.assertEqual(refused.output, "")
        self.assertEqual(refused.errors.count("\n"), 1, refused.errors)
        self.assertIn("sync.mode = synchronous, the job says x:2", refused.errors)


class PeerRefusals(Peers):
    def test_bad_settings_write_nothing(self):
        for arguments, word in (
                (["--sync.mode=x:3"], "sync.mode"),
                (["--sync.mode=groups:0/0,1"], "sync.mode"),
                (["--parallel.pipelines=1"], "sync.mode"),
                (["--parallel.stages=2", "--optimizer.clip=1"], "optimizer.clip"),
                (["--parallel.stages=2", "--model.tied=true"], "model.tied"),
                (["--parallel.chunks=2"], "parallel.chunks"),
                (["--device.kind=paced"], "device.kind"),
                (["--parallel.optimizer=staggered"], "parallel.optimizer"),
                (["--resilience.numerics=reproducible"], "resilience.numerics")):
            with self.subTest(arguments):
                self.assert_refused(arguments, word)


if __name__ == "__main__":
    unittest.main()
