"""examples/bad-day.toml: all troubles in one run, and the losses of a run without any."""
import json
import subprocess
from pathlib import Path

from harness import TENUTO, long_case
from survive_test import Survival

EXAMPLE = Path(__file__).parents[2] / "examples" / "bad-day.toml"
STEPS = 240


class BadDay(Survival):
    def check(self, *flags):
        """Trains the example without its faults and with them."""
        text = EXAMPLE.read_text()
        where = f"--job.directory={self.folder / 'runs'}"
        self.job.write_text(text[:text.index("[[fault]]")])
        undisturbed = self.train(where, *flags, name="undisturbed")
        self.job.write_text(text)
        run = self.train(where, *flags, name="bad-day")
        self.assert_same_bits(run, undisturbed, STEPS)
        kinds = {event["event"] for event in run.events()}
        self.assertLessEqual({"detection", "decision", "death", "recovery", "join"}, kinds)
        self.assertNotIn("resume", kinds)
        compared = [event for event in run.events() if event.get("alternatives")]
        self.assertTrue(compared)
        for event in compared:
            self.assertEqual(sum(one["chosen"] for one in event["alternatives"]), 1, event)
        return run

    @long_case
    def test_a_gpt_learns_through_a_bad_day(self):
        self.check()

    @long_case
    def test_paced_workers_come_through_a_bad_day(self):
        run = self.check("--device.kind=paced")
        reasons = " ".join(self.told(run, "decision"))
        self.assertIn("without waiting for the norm", reasons)

    def test_simulate_says_what_the_run_would_do(self):
        asked = subprocess.run([TENUTO, "simulate", str(EXAMPLE), "--iterations", str(STEPS),
                                "--json"], text=True, capture_output=True, timeout=60, check=True)
        said = json.loads(asked.stdout)
        parts = said["with_remedies"]["parts"]
        self.assertEqual([part["first_step"] for part in parts] + [STEPS],
                         [0] + [part["end_step"] for part in parts])
        total = sum((part["end_step"] - part["first_step"]) * part["step_ms"] + part["change_ms"]
                    for part in parts)
        self.assertAlmostEqual(total, said["with_remedies"]["total_ms"], delta=1e-3)
        bound = sum((part["end_step"] - part["first_step"]) * part["lower_bound_ms"]
                    for part in parts)
        self.assertAlmostEqual(bound, said["with_remedies"]["lower_bound_ms"], delta=1e-3)
        for part in parts:
            self.assertLessEqual(part["lower_bound_ms"], part["step_ms"], part)
        self.assertLess(total, 1.15 * bound)
        # The same plan on the same cluster takes the same time by both answers.
        first = said["stretches"][0]
        self.assertEqual([first["first_step"], parts[0]["first_step"]], [0, 0])
        self.assertEqual(first["step_ms"], parts[0]["step_ms"])
        remedies = " ".join(part["remedy"] for part in parts)
        self.assertIn("other routes of micro-batches", remedies)
        # A run that only observes keeps its plan, and nothing is said of remedies.
        self.job.write_text(EXAMPLE.read_text().replace("[resilience]",
                                                        '[resilience]\nmode = "observe"'))
        told = subprocess.run([TENUTO, "simulate", str(self.job), "--iterations", str(STEPS)],
                              text=True, capture_output=True, timeout=60, check=True)
        self.assertNotIn("remedies", told.stdout)
