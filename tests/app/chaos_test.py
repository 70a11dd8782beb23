"""Faults of all kinds drawn from a seed: a run loses nothing, and config.toml lists the faults."""
import unittest

from harness import SILENCE, another_case
from survive_test import Survival


class Chaos(Survival):
    def play(self, seed):
        """Trains without faults and with the faults of this seed: steps and losses are the same."""
        self.write_job(job__steps=100, job__checkpoint_every=25, parallel__pipelines=3,
                       device__forward_ms=[4.0], resilience__numerics="reproducible",
                       resilience__silence_seconds=float(SILENCE))
        undisturbed = self.losses(self.train(name="undisturbed"))
        self.add_fault(kind="chaos", seed=seed, every=8, at_step=5)
        run = self.start(name="disturbed")
        run.wait_for_steps(1)
        workers = run.workers()
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_gone(workers)
        self.assertEqual([line["step"] for line in run.metrics()], list(range(100)))
        self.assertEqual(self.losses(run), undisturbed)
        self.assertEqual(run.checkpoints()[-1], 100)
        drawn = (run.folder / "config.toml").read_text()
        self.assertGreater(drawn.count("[[fault]]"), 5)
        self.assertNotIn('"chaos"', drawn)
        self.assertGreater(len(self.told(run, "death")), 0)

    @another_case
    def test_seed_1(self):
        self.play(1)

    def test_seed_2(self):
        self.play(2)

    @another_case
    def test_seed_3(self):
        self.play(3)


if __name__ == "__main__":
    unittest.main()
