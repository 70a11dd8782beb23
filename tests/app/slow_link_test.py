"""A slow link in a live run: found, absorbed, healed; asked about and treated otherwise."""
import json
import os
import re
import stat
import subprocess
import unittest

from harness import Case, TENUTO


def tenuto(*arguments):
    return subprocess.run([TENUTO, *map(str, arguments)], text=True, capture_output=True,
                          timeout=60)


class SlowLink(Case):
    def write_faulty_job(self, fault):
        self.write_job(job__steps=70, job__checkpoint_every=0, job__validate_every=0,
                       job__validate_micros=0, parallel__stages=4, parallel__pipelines=1,
                       parallel__micros=12, parallel__order="zb-h1", optimizer__kind="sgd")
        if fault:
            with self.job.open("a") as file:
                file.write('[[fault]]\nkind = "slow-link"\nlink = 1\nlatency_ms = 15\n'
                           'at_step = 20\nuntil_step = 40\n')

    def test_found_absorbed_and_healed_with_the_same_numbers(self):
        self.write_faulty_job(fault=False)
        expected = self.losses(self.train(name="quiet"))
        self.write_faulty_job(fault=True)
        run = self.train(name="slow")
        self.assertEqual(self.losses(run), expected)
        detections = [event for event in run.events() if event["event"] == "detection"]
        self.assertRegex(detections[0]["reason"],
                         r"link 1-2 \(worker 1 to worker 2\) is slow since step 20: .*, sure \d")
        # Found within three steps, known once the step after is committed.
        self.assertLessEqual(detections[0]["step"], 20 + 3 + 1)
        reasons = [event["reason"] for event in run.events() if event["event"] == "decision"]
        in_force = [re.fullmatch(r"plan (\d+) \((.*)\) is in force from step (\d+)", reason)
                    for reason in reasons]
        changes = [match.groups() for match in in_force if match]
        self.assertEqual([name for _, name, _ in changes], ["auto", "zb-h1"], reasons)
        self.assertTrue((run.folder / "plan-1-2.json").exists())
        plans = [line["plan"] for line in run.metrics()]
        first = int(changes[0][2])
        self.assertEqual((plans[first - 1], plans[first], plans[-1]), ("zb-h1", "auto", "zb-h1"))
        self.assertIn("is slow since step 20", run.output)
        picture = (run.folder / "steps.svg").read_text()
        self.assertTrue(picture.startswith("<svg") and "is slow since" in picture)

    def test_observed_alone(self):
        self.write_faulty_job(fault=True)
        run = self.train("--resilience.slow_links=observe")
        self.assertEqual({line["plan"] for line in run.metrics()}, {"zb-h1"})
        self.assertIn("is slow since step 20", run.output)

    def test_not_looked_at(self):
        self.write_faulty_job(fault=True)
        run = self.train("--resilience.slow_links=off")
        self.assertNotIn("is slow", run.output)


class Live(Case):
    def test_status_and_wishes(self):
        run = self.start("--job.steps=5000", "--job.checkpoint_every=0")
        run.wait_for_steps(3)
        where = run.folder / "coordinator.json"
        self.assertEqual(stat.S_IMODE(os.stat(where).st_mode), 0o600)
        status = json.loads(tenuto("status", run.folder, "--json").stdout)
        self.assertEqual((status["situation"], status["plan"], status["slow_links"]),
                         ("running", "1f1b", "adapt"))
        self.assertGreaterEqual(status["step"], 3)
        self.assertEqual([worker["alive"] for worker in status["workers"]], [True] * 4)
        self.assertIn("of 5000, running", tenuto("status", run.folder).stdout)

        wish = tenuto("inject", run.folder, "resilience.slow_links=observe")
        self.assertEqual((wish.returncode, wish.stdout),
                         (0, "resilience.slow_links=observe: done\n"))
        status = json.loads(tenuto("status", run.folder, "--json").stdout)
        self.assertEqual(status["slow_links"], "observe")
        refused = tenuto("inject", run.folder, "resilience.slow_links=sometimes")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("expected resilience.slow_links=adapt", refused.stderr)
        self.assertEqual(tenuto("inject", run.folder, "checkpoint").returncode, 0)

        # A stranger's token is refused, and nothing comes of it.
        known = json.loads(where.read_text())
        where.write_text(json.dumps({**known, "token": "guessed"}))
        stranger = tenuto("status", run.folder)
        self.assertEqual(stranger.returncode, 2)
        self.assertIn("the token", stranger.stderr)

        run.process.terminate()
        self.assertEqual(run.finish(), 143)
        self.assertTrue(run.checkpoints())
        self.assertFalse(where.exists())
        over = tenuto("status", run.folder)
        self.assertEqual(over.returncode, 2)
        self.assertIn("is not a live run", over.stderr)

    def test_no_run(self):
        nobody = tenuto("status", self.folder / "nothing")
        self.assertEqual(nobody.returncode, 2)
        self.assertIn("there is no run at", nobody.stderr)


if __name__ == "__main__":
    unittest.main()
