"""Workers rejoin a live run: a peer transfers the state to them, and no step is lost."""
import json
import unittest

from harness import KILL, SANITIZED, SILENCE, STOP, another_case, busy_case
from survive_test import Survival

LEARNS = "receives the state"
KNOWS = "has the state of version"


class Returning(Survival):
    def wait_for(self, run, sentence, count=1):
        """Waits until `count` join events contain these words."""
        def told():
            return sum(sentence in reason for reason in self.told(run, "join")) >= count

        run.wait_until(told, f"'{sentence}'")

    def stop(self, run):
        run.process.terminate()
        self.assertEqual(run.finish(), 143, f"{run.errors}{self.logs(run)}")

    def assert_as_undisturbed(self, run, name="undisturbed"):
        """The stopped run has each step once, with the losses of an undisturbed run."""
        steps = len(run.metrics())
        alone = self.start(name=name)
        alone.wait_for_steps(steps)
        self.stop(alone)
        self.assert_whole(run, steps, self.losses(alone))

    def inject(self, run, wish):
        answer = self.ask("inject", run, wish)
        self.assertEqual(answer.returncode, 0, answer.stderr)

    def holders(self, run):
        """The workers that hold a stage in the newest plan."""
        plans = sorted(run.folder.glob("plan-*.json"), key=lambda path: path.stat().st_mtime_ns)
        return sorted({worker for stage in json.loads(plans[-1].read_text())["stages"]
                       for worker in stage["holders"]})


class Growth(Returning):
    """Runs that begin with fewer workers than they are planned for."""

    def test_two_absent_workers_join(self):
        self.write_job(job__steps=100000, parallel__pipelines=3, job__checkpoint_every=0)
        self.add_fault(kind="dead-worker", worker="1.1")
        self.add_fault(kind="dead-worker", worker="2.0")
        self.add_fault(kind="start", worker="1.1", at_step=4)
        run = self.start()
        run.wait_for_steps(3)
        self.assertEqual(sorted(run.workers()), [0, 1, 2, 5])
        self.wait_for(run, KNOWS)
        self.assertEqual(self.holders(run), [0, 1, 2, 3, 5])
        self.inject(run, "start=2.0")
        self.wait_for(run, KNOWS, 2)
        run.wait_for_steps(len(run.metrics()) + 5)
        self.stop(run)
        self.assertEqual(self.holders(run), [0, 1, 2, 3, 4, 5])
        joins = self.told(run, "join")
        self.assertEqual(joins[:1], ["worker 3 is started"])
        self.assertIn("worker 3 (stage 1 of pipeline 1) joins", joins)
        self.assertIn("worker 4 (stage 0 of pipeline 2) joins", joins)
        self.assertEqual({line["epoch"] for line in run.metrics()}, {1})
        self.write_job(job__steps=100000, parallel__pipelines=3, job__checkpoint_every=0)
        self.assert_as_undisturbed(run)

    @another_case
    def test_a_joined_worker_dies_and_rejoins(self):
        self.write_job(job__steps=100000, parallel__pipelines=3, job__checkpoint_every=0)
        self.add_fault(kind="dead-worker", worker="0.1")
        run = self.start()
        run.wait_for_steps(3)
        answer = self.ask("inject", run, "kill=0.1")
        self.assertEqual(answer.returncode, 2, "it has never come")
        self.assertIn("worker 1 has no process here: it has not connected yet", answer.stderr)
        self.assertIn("worker 1 has not connected yet", self.ask("status", run).stdout)
        self.inject(run, "start=0.1")
        self.wait_for(run, KNOWS)
        self.inject(run, "kill=coordinator")
        run.wait_for_steps(len(run.metrics()) + 5)
        self.kill(run, 1)
        run.wait_for_steps(len(run.metrics()) + 5)
        self.inject(run, "start=0.1")
        self.wait_for(run, KNOWS, 2)
        run.wait_for_steps(len(run.metrics()) + 5)
        self.stop(run)
        self.assertEqual(self.holders(run), list(range(6)))


class Join(Returning):
    def test_a_killed_worker_rejoins(self):
        self.write_job(job__steps=200, job__validate_every=20)
        undisturbed = self.losses(self.train(name="undisturbed"))
        run = self.start("--resilience.restarts=1")
        run.wait_for_steps(2)
        first = run.workers()
        self.kill(run, 3)
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_gone(first)
        self.assert_whole(run, 200, undisturbed)
        joins = self.told(run, "join")
        self.assertEqual(joins[0], "worker 3 is started again")
        self.assertEqual(joins[1], "worker 3 (stage 1 of pipeline 1) returns")
        self.assertIn(LEARNS, joins[2])
        self.assertIn(KNOWS, joins[3])
        self.assertEqual(len(joins), 4)
        # The first plan is in force again, and the join began no epoch.
        self.assertEqual(max(line["epoch"] for line in run.metrics()), 2)
        self.assertEqual(self.holders(run), [0, 1, 2, 3])
        self.assertIn("has received the whole state", self.logs(run)["worker-3.log"])

    def test_a_donor_need_not_be_a_neighbour_in_the_ring(self):
        """Three of five workers in an all-reduce ring rejoin, two of them while the first still
        receives the state: each of the two gets the state from a worker that is no neighbour."""
        self.write_job(job__steps=100000, job__checkpoint_every=0, job__validate_every=0,
                       parallel__stages=1, parallel__pipelines=5, device__forward_ms=[20.0])
        run = self.start()
        run.wait_for_steps(2)
        for count, worker in enumerate((2, 3, 4), 1):
            self.kill(run, worker)
            run.wait_until(lambda: len(self.told(run, "death")) == count, "the death")
        run.wait_for_steps(len(run.metrics()) + 2)
        for worker in (2, 3, 4):
            self.inject(run, f"start={worker}")
        run.wait_until(lambda: all(any(f"worker {worker} (" in reason and KNOWS in reason
                                       for reason in self.told(run, "join"))
                                   for worker in (2, 3, 4)), "all have the state")
        run.wait_for_steps(len(run.metrics()) + 3)
        self.stop(run)

    @another_case
    def test_a_killed_worker_rejoins_only_when_asked(self):
        run = self.start("--job.steps=100000", "--job.checkpoint_every=0")
        run.wait_for_steps(2)
        self.assertEqual(self.ask("inject", run, "start=1.1").returncode, 2, "it lives")
        self.kill(run, 3)
        run.wait_for_steps(len(run.metrics()) + 60)
        self.assertNotIn(3, run.workers())
        self.inject(run, "start=1.1")
        self.wait_for(run, KNOWS)
        run.wait_for_steps(len(run.metrics()) + 5)
        status = json.loads(self.ask("status", run, "--json").stdout)
        self.assertEqual((status["members"], status["epoch"]), (4, 2))
        self.assertEqual([worker["joining"] for worker in status["workers"]], ["no"] * 4)
        # And once more, as often as one likes.
        self.kill(run, 3)
        run.wait_for_steps(len(run.metrics()) + 3)
        self.inject(run, "start=3")
        self.wait_for(run, KNOWS, 2)
        self.stop(run)

    @another_case
    def test_a_stopped_worker_is_replaced_by_a_new_process(self):
        run = self.start("--job.steps=100000", f"--resilience.silence_seconds={SILENCE}",
                         "--resilience.restarts=1", "--job.checkpoint_every=0")
        run.wait_for_steps(2)
        before = run.workers()
        self.kill(run, 2, STOP)
        self.wait_for(run, KNOWS)
        self.assertNotEqual(run.workers()[2], before[2])
        self.stop(run)

    def receives_from_another(self, run):
        """Kills the donor of the newest state transfer. True if the joiner then gets a new donor,
        False if it had all of the state before the donor died."""
        transfers = sum(LEARNS in reason for reason in self.told(run, "join"))

        def since():
            joins = self.told(run, "join")
            begun = [at for at, reason in enumerate(joins) if LEARNS in reason]
            return joins[begun[transfers - 1] + 1:]

        self.kill(run, 1)  # the donor: the first holder of the stage
        run.wait_until(lambda: any(LEARNS in reason or KNOWS in reason for reason in since()),
                       "the joiner has a new donor, or all of the state")
        return LEARNS in next(reason for reason in since() if LEARNS in reason or KNOWS in reason)

    @busy_case
    def test_joiner_and_donor_die_in_the_state_transfer(self):
        # The first part has 1 MiB, later ones more or less: the transfer takes several steps. Under
        # sanitizers, a step with a state of 8 MiB takes a second.
        self.write_job(job__steps=100000, parallel__pipelines=3, job__checkpoint_every=0,
                       device__parameter_bytes=1 << (22 if SANITIZED else 23))
        run = self.start()
        run.wait_for_steps(2)
        deaths, transfers = 3, 2
        self.kill(run, 5)
        run.wait_for_steps(len(run.metrics()) + 2)
        self.inject(run, "start=5")
        self.wait_for(run, LEARNS)
        self.kill(run, 5)
        run.wait_for_steps(len(run.metrics()) + 4)
        self.inject(run, "start=5")
        self.wait_for(run, LEARNS, transfers)
        # On a busy machine this test may run so late that the joiner has all of the state before
        # its donor dies. Then both rejoin, and the donor is killed in the next state transfer.
        while not self.receives_from_another(run):
            self.assertLess(deaths, 40, "the donor was never killed in time")
            known = sum(KNOWS in reason for reason in self.told(run, "join"))
            self.inject(run, "start=1")
            self.wait_for(run, KNOWS, known + 1)
            self.kill(run, 5)
            run.wait_for_steps(len(run.metrics()) + 4)
            self.inject(run, "start=5")
            deaths, transfers = deaths + 2, transfers + 2
            self.wait_for(run, LEARNS, transfers)
        last = max(at for at, reason in enumerate(self.told(run, "join")) if LEARNS in reason)
        run.wait_until(lambda: any(KNOWS in reason for reason in self.told(run, "join")[last:]),
                       f"'{KNOWS}' after the last transfer")
        run.wait_for_steps(len(run.metrics()) + 5)
        self.stop(run)
        self.assert_as_undisturbed(run)
        self.assertEqual(len(self.told(run, "death")), deaths)
        self.assertEqual(self.holders(run), [0, 2, 3, 4, 5])

    def test_a_joiner_that_exits_at_once_is_forgotten(self):
        wrapper = self.folder / "wrapper.py"
        wrapper.write_text("import os, sys\n"
                           "if sys.argv[sys.argv.index('--incarnation') + 1] == '1': sys.exit(9)\n"
                           "os.execv(sys.argv[1], sys.argv[1:])\n")
        self.write_job(coordinator__launch=["python3", str(wrapper)], job__checkpoint_every=0)
        run = self.start("--job.steps=100000", "--resilience.restarts=2")
        run.wait_for_steps(2)
        self.kill(run, 0)
        self.wait_for(run, KNOWS)
        self.assertEqual(self.told(run, "join").count("worker 0 is started again"), 2)
        self.assertEqual(len(self.told(run, "death")), 1)
        self.stop(run)

    @another_case
    def test_a_worker_is_started_at_a_given_step(self):
        self.write_job(job__steps=120, job__checkpoint_every=30)
        undisturbed = self.losses(self.train(name="undisturbed"))
        self.add_fault(kind="kill", worker="0.1", at_step=4, at_op=6)
        self.add_fault(kind="start", worker="0.1", at_step=8)
        run = self.train()
        self.assert_whole(run, 120, undisturbed)
        self.assertEqual(run.checkpoints()[-1], 120)
        self.assertIn("injected fault: in step 8 worker 0.1 is started",
                      self.told(run, "fault"))
        self.assertTrue(any(KNOWS in reason for reason in self.told(run, "join")))

    @busy_case
    def test_a_real_model_has_the_same_losses(self):
        self.need_torch()
        for tied in (True,) if SANITIZED else (False, True):
            self.write_job(data__paths=[self.write_text()], device__kind="cpu", job__steps=100000,
                           model__layers=2, model__width=16, model__heads=2, model__sequence=16,
                           model__dropout=0.1, parallel__micros=4, model__tied=tied,
                           job__checkpoint_every=0, job__validate_every=10)
            name = f"tied-{tied}"
            run = self.start(name=name)
            run.wait_for_steps(4)
            self.kill(run, 1)
            run.wait_for_steps(len(run.metrics()) + 2)
            self.inject(run, "start=0.1")
            self.wait_for(run, KNOWS)
            run.wait_for_steps(len(run.metrics()) + 30)
            self.stop(run)
            self.assert_as_undisturbed(run, f"{name}-alone")

    @busy_case
    def test_a_state_of_several_parts_is_sent_bit_for_bit(self):
        # About 2.5 MB of state per stage: several parts, with optimizer steps in between.
        self.need_torch()
        sgd = {"optimizer__kind": "sgd", "optimizer__momentum": 0.9, "optimizer__weight_decay": 0.1}
        for name, optimizer in (("sgd", sgd),) if SANITIZED else (("adamw", {}), ("sgd", sgd)):
            self.write_job(data__paths=[self.write_text()], device__kind="cpu", job__steps=100000,
                           job__checkpoint_every=0, job__validate_every=0, model__layers=2,
                           model__width=128, model__heads=4, model__sequence=16,
                           resilience__numerics="reproducible", **optimizer)
            run = self.start(name=name)
            run.wait_for_steps(4)
            self.kill(run, 1)
            run.wait_for_steps(len(run.metrics()) + 2)
            self.inject(run, "start=0.1")
            self.wait_for(run, KNOWS)
            run.wait_for_steps(len(run.metrics()) + 12)
            self.stop(run)
            self.assertNotIn(LEARNS, self.told(run, "join")[-1])
            steps = len(run.metrics())
            alone = self.start(name=f"{name}-alone")
            alone.wait_for_steps(steps)
            self.stop(alone)
            undisturbed = self.losses(alone)
            self.assertEqual(self.losses(run), {step: undisturbed[step] for step in range(steps)})


if __name__ == "__main__":
    unittest.main()
