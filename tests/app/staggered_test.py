"""Runs of real processes whose stages take optimizer steps before the global norm is known."""
import json
import random
import statistics
import subprocess
import time
import unittest

from harness import LIMIT, SANITIZED, TENUTO, another_case, busy_case
from survive_test import Survival


class Staggered(Survival):
    def priced(self, *flags):
        """What `tenuto simulate` says of the job, with optimizer steps: its JSON."""
        found = subprocess.run([TENUTO, "simulate", str(self.job), "--update", "yes", "--json",
                                *flags], text=True, capture_output=True, timeout=LIMIT)
        self.assertEqual(found.returncode, 0, found.stderr)
        return json.loads(found.stdout)

    def write_engine_job(self, **more):
        self.need_torch()
        text = self.folder / "text"
        text.write_text("".join(f"{i} bottles of beer on the wall, {i * i} in all\n"
                                for i in range(400)))
        settings = {"data__paths": [str(text)], "job__steps": 30, "job__checkpoint_every": 10,
                    "job__validate_every": 7, "job__validate_micros": 2, "parallel__stages": 2,
                    "parallel__pipelines": 2, "parallel__micros": 3, "parallel__order": "1f1b",
                    "parallel__micro_rows": 2, "device__kind": "cpu", "model__layers": 2,
                    "model__width": 16, "model__heads": 2, "model__sequence": 16}
        self.write_job(**{**settings, **more})

    @another_case
    def test_paced_period(self):
        self.write_job(job__steps=40, job__checkpoint_every=0, job__validate_every=0,
                       job__validate_micros=0, parallel__stages=4, parallel__pipelines=2,
                       parallel__micros=6, parallel__order="zb-h2", parallel__dispatch="listed",
                       device__forward_ms=[5.0], device__backward_input_ms=[5.0],
                       device__backward_weight_ms=[5.0], network__latency_ms=0.5)
        whole = self.train(name="barrier")
        run = self.train("--parallel.optimizer=staggered", name="staggered")
        self.assertEqual(self.losses(run), self.losses(whole))
        barrier = self.priced()["makespan_ms"]
        period = self.priced("--optimizer", "staggered")["period_ms"]
        self.assertLess(period, barrier - 5)
        self.assert_some_as_priced(run, 5, period)
        # No step is clipped, so the run chooses staggered by itself.
        found = self.train("--parallel.optimizer=auto", name="auto")
        self.assertEqual(self.losses(found), self.losses(whole))
        plans = self.told(found, "decision")
        wanted = "is proposed: steps without waiting for the norm"
        ahead = [reason for reason in plans if wanted in reason]
        self.assertEqual(len(ahead), 1, found.events())
        self.assert_some_as_priced(found, 20, period)

    def assert_some_as_priced(self, run, first, period):
        """At least one step from `first` on takes the priced time, on the workers' virtual clock. A
        busy machine makes some steps late: these take another time."""
        times = [line["period_ms"] for line in run.metrics()[first:-1] if "period_ms" in line]
        print(f"priced {period:.2f} ms, took {times}")
        self.assertTrue(any(abs(time - period) <= 0.001 * period for time in times), times)

    @busy_case
    def test_clipped_steps_of_the_engine(self):
        # The clip is the median of the norms: some steps are kept, others are undone.
        self.write_engine_job(optimizer__clip=0)
        norms = [line["gradient_norm"] for line in self.train(name="norms").metrics()]
        self.job.unlink()
        self.write_engine_job(optimizer__clip=round(statistics.median(norms), 3))
        whole = self.train(name="barrier")
        run = self.train("--parallel.optimizer=staggered", name="staggered")
        self.assertEqual([line["gradient_norm"] for line in run.metrics()],
                         [line["gradient_norm"] for line in whole.metrics()])
        self.assertEqual(self.losses(run), self.losses(whole))
        self.assertEqual([line.get("validation_loss") for line in run.metrics()],
                         [line.get("validation_loss") for line in whole.metrics()])
        self.assertEqual(run.checkpoints(), whole.checkpoints())
        # Half of the steps are clipped: with "auto" the run keeps the barrier.
        left = self.train("--parallel.optimizer=auto", name="auto")
        self.assertEqual(self.losses(left), self.losses(whole))
        anew = (run.folder / "worker-0.log").read_text().count(" is run again")
        print(f"{anew} of 30 steps taken again")
        self.assertGreater(anew, 0)
        # Stopped, and resumed with the other update.
        self.train("--parallel.optimizer=staggered", "--job.steps=20", name="resumed")
        resumed = self.train("--resume", name="resumed")
        self.assertEqual(self.losses(resumed), self.losses(whole))

    @busy_case
    def test_deaths_before_the_norm_is_known(self):
        chance = random.Random(3)
        self.write_engine_job(optimizer__clip=0)
        norms = [line["gradient_norm"] for line in self.train(name="norms").metrics()]
        self.job.unlink()
        self.write_engine_job(optimizer__clip=round(statistics.median(norms), 3))
        undisturbed = self.losses(self.train(name="barrier"))
        survived = 0
        for victim in (1, 2) if SANITIZED else (0, 1, 2, 3):
            run = self.start("--parallel.optimizer=staggered", name=f"victim-{victim}")
            run.wait_for_steps(3 + 2 * victim)
            time.sleep(chance.random() * 0.1)
            try:
                self.kill(run, victim)
            except ProcessLookupError:
                pass  # this run has ended before; others have not, as the last line says
            self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
            self.assert_whole(run, 30, undisturbed)
            survived += len(self.told(run, "death"))
        self.assertGreater(survived, 0 if SANITIZED else 1)

    @another_case
    def test_a_worker_rejoins(self):
        self.write_job(job__steps=200, parallel__optimizer="staggered", resilience__restarts=1)
        undisturbed = self.losses(self.train("--parallel.optimizer=barrier", name="barrier"))
        run = self.start(name="back")
        run.wait_for_steps(20)
        self.kill(run, 3)
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_whole(run, 200, undisturbed)
        self.assertTrue([reason for reason in self.told(run, "join") if "has the state" in reason],
                        run.events())

    def test_a_stop_and_a_checkpoint_when_asked(self):
        self.write_engine_job(job__steps=100000, job__checkpoint_every=0, job__validate_every=0,
                              parallel__optimizer="staggered")
        run = self.start()
        run.wait_for_steps(5)
        run.process.terminate()
        self.assertEqual(run.finish(), 143)
        self.assertEqual(len(run.checkpoints()), 1)
        self.assertEqual(run.checkpoints()[0], len(run.metrics()))


if __name__ == "__main__":
    unittest.main()
