"""Everything at once, as a seed draws it: a run loses nothing, and the seed tells what happened."""
import unittest

from harness import SANITIZED, SILENCE
from survive_test import Survival


class Chaos(Survival):
    def test_nothing_is_lost(self):
        self.write_job(job__steps=100, job__checkpoint_every=25, parallel__pipelines=3,
                       device__forward_ms=[4.0], resilience__numerics="reproducible",
                       resilience__silence_seconds=float(SILENCE))
        undisturbed = self.losses(self.train(name="undisturbed"))
        quiet = self.job.read_text()
        deaths = 0
        for seed in (2,) if SANITIZED else (1, 2, 3):
            self.job.write_text(quiet)
            self.add_fault(kind="chaos", seed=seed, every=8, at_step=5)
            run = self.start(name=f"seed-{seed}")
            run.wait_for_steps(1)
            workers = run.workers()
            self.assertEqual(run.finish(), 0, f"seed {seed}: {run.errors}{self.logs(run)}")
            self.assert_gone(workers)
            self.assertEqual([line["step"] for line in run.metrics()], list(range(100)))
            self.assertEqual(self.losses(run), undisturbed, f"seed {seed}")
            self.assertEqual(run.checkpoints()[-1], 100)
            deaths += len(self.told(run, "death"))
            drawn = (run.folder / "config.toml").read_text()
            self.assertGreater(drawn.count("[[fault]]"), 5)
            self.assertNotIn('"chaos"', drawn)
        self.assertGreater(deaths, 0)


if __name__ == "__main__":
    unittest.main()
