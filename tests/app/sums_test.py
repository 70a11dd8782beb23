"""All-reduce of gradients while one worker is slow: real processes on the virtual clock."""
import json
import subprocess
import unittest

from harness import Case, LIMIT, TENUTO

SLOW = """
[[fault]]
kind = "slow-worker"
worker = "2.0"
speed = 0.7
at_step = 4
"""


class Sums(Case):
    """Four workers of one stage; worker 2 turns slow."""

    def train(self, name, way, steps=40):
        self.write_job(job__steps=steps, job__validate_every=0, job__checkpoint_every=0,
                       parallel__stages=1, parallel__pipelines=4, parallel__micros=4,
                       parallel__all_reduce=way, device__parameter_bytes=65536,
                       network__latency_ms=0.2, network__megabytes_per_second=5.0)
        self.job.write_text(self.job.read_text() + SLOW)
        run = self.start(name=name)
        self.assertEqual(run.finish(), 0, run.errors)
        return run

    def simulated(self, way):
        """The period of a step in the simulator, with the worker slow."""
        job = self.folder / "priced.toml"
        job.write_text(self.job.read_text().replace("at_step = 4", "at_step = 0"))
        found = subprocess.run([TENUTO, "simulate", str(job), "--all-reduce", way, "--optimizer",
                                "in-turn", "--json"], text=True, capture_output=True, timeout=LIMIT)
        self.assertEqual(found.returncode, 0, found.stderr)
        return json.loads(found.stdout)

    def test_auto_waits_for_the_slow_worker_as_simulated(self):
        ring = self.train("ring", "ring").metrics()
        run = self.train("auto", "auto")
        metrics = run.metrics()
        reasons = [event["reason"] for event in run.events() if "sums of stage 0" in
                   event.get("reason", "")]
        self.assertEqual(len(reasons), 1, run.events())
        self.assertRegex(reasons[0], r"sums of stage 0 wait for worker 2, \d+(\.\d+)? ms late: "
                                     r"late-one, k = \d+, saves \d+(\.\d+)? ms")
        # Paced devices have whole numbers as weights and gradients: any order gives the same sum.
        self.assertEqual([step["loss"] for step in metrics], [step["loss"] for step in ring])
        periods = {way: [step["period_ms"] for step in steps[-12:]]
                   for way, steps in (("ring", ring), ("auto", metrics))}
        prices = {way: self.simulated(way)["period_ms"] for way in periods}
        self.assertLess(prices["auto"], 0.95 * prices["ring"])
        # A busy machine makes some steps late.
        off = {way: min(abs(period / prices[way] - 1) for period in periods[way])
               for way in periods}
        busy = not (metrics[-1]["lag_valid"] and ring[-1]["lag_valid"])
        if busy and max(off.values()) > 0.01:
            self.skipTest("the machine is too busy to keep the clock")
        self.assertLess(max(off.values()), 0.01, (periods, prices))

    def test_all_reduces_chosen_by_name(self):
        for way in ("halving", "tree", "direct", "late-one"):
            run = self.train(way, way, steps=6)
            self.assertEqual(len(run.metrics()), 6)
        found = subprocess.run([TENUTO, "train", str(self.job), "--parallel.all_reduce=halfing"],
                               text=True, capture_output=True, timeout=LIMIT)
        self.assertNotEqual(found.returncode, 0)
        self.assertIn("did you mean halving?", found.stderr)


if __name__ == "__main__":
    unittest.main()
