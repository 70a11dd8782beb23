"""Workers die during a run: it continues without them, and loses no step."""
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import time
import unittest

from harness import Case, KILL, LIMIT, SANITIZED, SILENCE, STOP, TENUTO, another_case, busy_case

RESUMED = re.compile(r"step (\d+) has begun (?:again )?without .*, "
                     r"([0-9.]+) ms after the coordinator heard")


class Survival(Case):
    def told(self, run, kind):
        return [event["reason"] for event in run.events() if event["event"] == kind]

    def assert_whole(self, run, steps, undisturbed=None):
        """All steps, each once, with the losses of a run without deaths."""
        losses = [(line["step"], line["loss"]) for line in run.metrics()]
        self.assertEqual([step for step, _ in losses], list(range(steps)))
        for step, loss in losses:
            self.assertIsNotNone(loss, f"step {step}")
            if undisturbed is not None:
                self.assertAlmostEqual(loss, undisturbed[step], delta=1e-5 * abs(loss))

    def assert_same_bits(self, run, undisturbed, steps):
        """The losses and all bytes of the checkpoint after `steps` steps are the same."""
        self.assertEqual(self.losses(run), self.losses(undisturbed))
        last = f"checkpoint-{steps}"
        shards = sorted((undisturbed.folder / last).glob("*.safetensors"))
        self.assertTrue(shards)
        for shard in shards:
            self.assertEqual((run.folder / last / shard.name).read_bytes(), shard.read_bytes(),
                             shard.name)

    def kill(self, run, worker, signal=KILL):
        """Sends the signal to the worker; False if the worker has already ended."""
        processes = run.workers()
        if worker not in processes:
            return False
        os.kill(processes[worker], signal)
        return True

    def resumptions(self, run):
        return [float(RESUMED.search(reason)[2]) for reason in self.told(run, "recovery")
                if RESUMED.search(reason)]


    def add_fault(self, **keys):
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        self.job.write_text(f"{self.job.read_text()}[[fault]]\n{lines}")

    def ask(self, command, run, *words):
        return subprocess.run([TENUTO, command, str(run.folder), *words], text=True,
                              capture_output=True, timeout=LIMIT)

    def write_text(self):
        """Some text to learn from; its path."""
        text = self.folder / "text.txt"
        text.write_text("".join(f"{i} and {i * 7 % 101} make {i * i % 97}.\n" for i in range(4000)))
        return str(text)


class Survive(Survival):
    def test_any_worker_killed_at_any_moment(self):
        chance = random.Random(11)
        undisturbed = self.losses(self.train(name="undisturbed"))
        times = []
        for victim in (0, 3, 1) if SANITIZED else (0, 1, 2, 3, 1, 2):
            name = f"victim-{victim}-{len(times)}"
            run = self.start(name=name)
            run.wait_for_steps(2)
            time.sleep(chance.random() * 0.1)
            before = run.workers()
            died = self.kill(run, victim)
            while died and len(run.metrics()) < 19 and run.process.poll() is None:
                now = run.workers()  # no process is started
                self.assertTrue(set(now.items()) <= set(before.items()))
                time.sleep(0.02)
            self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
            self.assert_gone(before)
            self.assert_whole(run, 20, undisturbed)
            self.assertEqual(run.checkpoints()[-1], 20)
            deaths = self.told(run, "death")
            if not deaths:  # the worker had finished before
                continue
            self.assertEqual(len(deaths), 1)
            self.assertRegex(deaths[0], fr"worker {victim} \(stage {victim % 2} of pipeline "
                                        fr"{victim // 2}\) was killed by signal 9 in step \d+: the "
                                        r"run continues without it, epoch 2")
            self.assertEqual({line["epoch"] for line in run.metrics()}, {1, 2})
            plan = json.loads((run.folder / "plan-2.json").read_text())
            self.assertNotIn(victim, [worker for stage in plan["stages"]
                                      for worker in stage["holders"]])
            times += self.resumptions(run)
        self.assertGreater(len(times), 2)
        print(f"from the news of a death to the step: {statistics.median(times):.1f} ms median, "
              f"{max(times):.1f} ms at most, of {len(times)}")

    def test_two_die_at_once_and_a_third_later(self):
        self.write_job(parallel__stages=3, parallel__pipelines=3, parallel__micros=2,
                       job__steps=30)
        undisturbed = self.losses(self.train(name="undisturbed"))
        run = self.start()
        run.wait_for_steps(3)
        self.kill(run, 0)
        self.kill(run, 4)
        run.wait_for_steps(10)
        self.kill(run, 8)
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_whole(run, 30, undisturbed)
        self.assertEqual(len(self.told(run, "death")), 3)
        self.assertEqual(max(line["epoch"] for line in run.metrics()), 4)

    def test_a_stopped_worker_is_expelled(self):
        run = self.start(f"--resilience.silence_seconds={SILENCE}")
        run.wait_for_steps(2)
        workers = run.workers()
        self.kill(run, 2, STOP)
        begin = time.monotonic()
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        print(f"stopped: ended after {time.monotonic() - begin:.3f} s")
        self.assert_gone(workers)
        self.assert_whole(run, 20)
        self.assertRegex(self.told(run, "death")[0], r"worker 2 .* was silent for \d+\.\d s")

    def test_death_of_an_only_holder_ends_the_run_resumably(self):
        run = self.start("--job.steps=500", "--job.checkpoint_every=4")
        run.wait_for_steps(6)
        self.kill(run, 1)
        run.wait_for_steps(len(run.metrics()) + 4)
        self.kill(run, 3)
        self.assertEqual(run.finish(), 75, run.errors)
        self.assertIn("no live worker holds stage 1", run.errors)
        again = self.train("--resume", f"--job.steps={run.checkpoints()[-1] + 3}")
        self.assertGreater(again.metrics()[-1]["epoch"], 2)

    @another_case
    def test_a_run_with_fewer_workers_resumes_with_all(self):
        run = self.start()
        run.wait_for_steps(3)
        self.kill(run, 0)
        self.assertEqual(run.finish(), 0, run.errors)
        again = self.train("--resume", "--job.steps=24")
        self.assert_whole(again, 24)
        self.assertGreater(again.metrics()[-1]["epoch"], 2)


class Rehearsed(Survival):
    def kill_after_any_op(self, victim):
        self.write_job(job__steps=6, job__validate_every=3)
        undisturbed = self.losses(self.train(name="undisturbed"))
        text = self.job.read_text()
        for op in range(victim % 3, 22, 15 if SANITIZED else 5):
            self.job.write_text(text)
            self.add_fault(kind="kill", worker=f"{victim // 2}.{victim % 2}", at_step=2, at_op=op)
            run = self.train(name=f"kill-{op}")
            self.assert_whole(run, 6, undisturbed)
            self.assertEqual(len(self.told(run, "fault")), 1)
            fired = self.told(run, "death")
            # A worker with fewer ops never reaches this op.
            self.assertEqual(len(fired), 1 if op < 15 else len(fired), op)

    @another_case
    def test_worker_0_killed_after_any_op(self):
        self.kill_after_any_op(0)

    def test_worker_1_killed_after_any_op(self):
        self.kill_after_any_op(1)

    def test_worker_2_killed_after_any_op(self):
        self.kill_after_any_op(2)

    @another_case
    def test_worker_3_killed_after_any_op(self):
        self.kill_after_any_op(3)

    @busy_case
    def test_the_example(self):
        example = pathlib.Path(__file__).parents[2] / "examples" / "failures.toml"
        faster = [f"--device.{op}_ms=1" for op in ("forward", "backward_input", "backward_weight")]
        faster += [f"--job.directory={self.folder / 'runs'}", "--resilience.numerics=reproducible",
                   f"--resilience.silence_seconds={SILENCE}"]
        self.job.write_text(example.read_text().split("[[fault]]")[0])
        undisturbed = self.train(*faster, name="undisturbed")
        self.job = example
        run = self.train(*faster, name="failures")
        self.assert_whole(run, 200)
        self.assert_same_bits(run, undisturbed, 200)
        self.assertEqual([re.match(r"worker (\d)", death)[1] for death in self.told(run, "death")],
                         ["1", "7", "4"])
        back = [reason for reason in self.told(run, "join") if "has the state" in reason]
        self.assertEqual([re.search(r"worker (\d)", reason)[1] for reason in back], ["1", "7"])

    def learn_with_losses(self, numerics):
        """Trains a model undisturbed, and with two workers killed; returns both runs."""
        self.need_torch()
        self.write_job(data__paths=[self.write_text()], device__kind="cpu", job__steps=14,
                       model__layers=2, model__width=16, model__heads=2, model__sequence=16,
                       model__dropout=0.1, parallel__micros=4, resilience__numerics=numerics)
        undisturbed = self.train(name="undisturbed")
        self.add_fault(kind="kill", worker="0.1", at_step=4, at_op=11)
        self.add_fault(kind="kill", worker="1.0", at_step=8, at_op=5)
        run = self.train()
        self.assertEqual(len(self.told(run, "death")), 2)
        return undisturbed, run

    def test_a_real_model_has_the_same_bits_if_asked_to(self):
        undisturbed, run = self.learn_with_losses("reproducible")
        self.assert_same_bits(run, undisturbed, 14)

    def test_a_real_model_has_the_same_losses(self):
        undisturbed, run = self.learn_with_losses("fast")
        self.assert_whole(run, 14, self.losses(undisturbed))
        # Until the first death not even the last bit differs.
        self.assertEqual([line["loss"] for line in run.metrics()[:5]],
                         [line["loss"] for line in undisturbed.metrics()[:5]])

    def test_injected_deaths(self):
        run = self.start("--job.steps=5000", f"--resilience.silence_seconds={SILENCE}")
        run.wait_for_steps(2)
        answer = self.ask("inject", run, "kill=0.1")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("kill=0.1: done in step", answer.stdout)
        run.wait_for_steps(len(run.metrics()) + 4)
        status = json.loads(self.ask("status", run, "--json").stdout)
        self.assertEqual((status["members"], status["epoch"]), (3, 2))
        self.assertFalse(status["workers"][1]["alive"])
        self.assertIn("epoch 2: 3 of 4 workers", self.ask("status", run).stdout)
        self.assertEqual(self.ask("inject", run, "kill=0.1").returncode, 2)
        self.assertIn("there is no worker 9.9", self.ask("inject", run, "kill=9.9").stderr)
        self.ask("inject", run, "stop=0")
        run.wait_for_steps(len(run.metrics()) + 6)
        run.wait_until(lambda: len(self.told(run, "death")) >= 2, "the second death")
        run.wait_for_steps(len(run.metrics()) + 4)
        run.process.terminate()
        self.assertEqual(run.finish(), 143, run.errors)
        self.assertEqual(len(self.told(run, "death")), 2)
        self.assertEqual(len(self.told(run, "fault")), 2)


if __name__ == "__main__":
    unittest.main()
