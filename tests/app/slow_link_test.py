"""A slow link in a live run: detected, absorbed, healed; tenuto status and inject."""
import json
import os
import re
import stat
import subprocess
import unittest

from harness import Case, LIMIT, TENUTO, another_case, busy_case


def tenuto(*arguments):
    return subprocess.run([TENUTO, *map(str, arguments)], text=True, capture_output=True,
                          timeout=LIMIT)


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
        # Detected within three steps, reported once the step after is committed.
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

    @another_case
    def test_observe_reports_but_keeps_the_plan(self):
        self.write_faulty_job(fault=True)
        run = self.train("--resilience.slow_links=observe")
        self.assertEqual({line["plan"] for line in run.metrics()}, {"zb-h1"})
        self.assertIn("is slow since step 20", run.output)

    @another_case
    def test_what_is_slow_is_named(self):
        """A pair of workers, all links of a worker, or a boundary in both pipelines."""
        for number, (where, scope) in enumerate((
                ('pair = "0.0-0.1"', None),
                ('port = "0.1"', "all links of worker 1 are slow"),
                ("link = 0", "all links of the boundary 0-1 in every pipeline are slow"))):
            self.write_job(job__steps=40, job__checkpoint_every=0, job__validate_every=0,
                           job__validate_micros=0, parallel__stages=3, parallel__pipelines=2,
                           parallel__micros=4, resilience__slow_links="observe")
            with self.job.open("a") as file:
                file.write(f'[[fault]]\nkind = "slow-link"\n{where}\nlatency_ms = 15\n'
                           'at_step = 20\n')
            run = self.train(name=f"slow-{number}")
            found = [event["reason"] for event in run.events()
                     if event["event"] == "detection" and " is slow since " in event["reason"]]
            self.assertTrue(any("link 0-1 " in reason for reason in found), found)
            scopes = {reason.split("; ", 1)[1] for reason in found if "; " in reason}
            self.assertEqual(scopes, {scope} if scope else set())

    @another_case
    def test_off_reports_nothing(self):
        self.write_faulty_job(fault=True)
        run = self.train("--resilience.slow_links=off")
        self.assertNotIn("is slow", run.output)


class Live(Case):
    def test_status_and_injected_faults(self):
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

        # A request with a wrong token is refused and changes nothing.
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

    def test_a_slow_link_is_injected_and_removed(self):
        self.write_job(job__steps=5000, job__checkpoint_every=0, job__validate_every=0,
                       job__validate_micros=0, parallel__stages=3, parallel__pipelines=1,
                       parallel__micros=4, resilience__slow_links="off")
        run = self.start()
        run.wait_for_steps(3)
        wish = tenuto("inject", run.folder, "link=1-2:40ms")
        self.assertEqual(wish.returncode, 0, wish.stderr)
        begin = int(re.fullmatch(r"link=1-2:40ms: from step (\d+) on\n", wish.stdout)[1])
        run.wait_for_steps(begin + 3)
        wish = tenuto("inject", run.folder, "link=1-2:0ms")
        end = int(re.fullmatch(r"link=1-2:0ms: from step (\d+) on\n", wish.stdout)[1])
        run.wait_for_steps(end + 3)
        for wish in ("link=0.0-0.1:5ms", "link=0.0-0.1:0ms", "port=0.1:5ms", "port=0.1:0ms"):
            asked = tenuto("inject", run.folder, wish)
            self.assertEqual(asked.returncode, 0, asked.stderr)
            self.assertRegex(asked.stdout, f"{wish}: ")
        for wrong, sentence in (("link=0.0-0.3:5ms", "does not name two workers of this job"),
                                ("port=0.9:5ms", "neither a port of network.cluster nor a worker"),
                                ("port=0.1", "is not a slow port"),
                                ("link=2-3:5ms", "there is no link 2-3: the links are 0-1 to 1-2"),
                                ("link=1-2", "expected its two stages"),
                                ("link=0-2:5ms", "there is no link 0-2"),
                                ("link=1-2:-5ms", "is not a slow link")):
            refused = tenuto("inject", run.folder, wrong)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(sentence, refused.stderr)
        run.process.terminate()
        self.assertEqual(run.finish(), 143)
        times = {line["step"]: line["iteration_ms"] for line in run.metrics()}
        for step, time in times.items():
            if begin <= step < end:  # 40 ms each way
                self.assertGreaterEqual(time, 80, step)
            elif step > 0:
                self.assertLess(time, 80, step)
        faults = [(event["step"], event["reason"]) for event in run.events()
                  if event["event"] == "fault" and event["reason"].endswith("on link 1")]
        self.assertEqual(faults, [
            (begin, f"injected fault: from step {begin} on 40 ms more each way on link 1"),
            (end, f"injected fault ends at step {end}: 40 ms more each way on link 1")])

    def test_real_links_are_not_slowed(self):
        run = self.start("--job.steps=5000", "--job.checkpoint_every=0", "--device.clock=real")
        run.wait_for_steps(2)
        refused = tenuto("inject", run.folder, "link=0-1:5ms")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("the links of this run are real", refused.stderr)
        run.process.terminate()
        run.finish()

    def test_no_run(self):
        nobody = tenuto("status", self.folder / "nothing")
        self.assertEqual(nobody.returncode, 2)
        self.assertIn("there is no run at", nobody.stderr)


class Replay(Case):
    @busy_case
    def test_a_trace_of_slow_links(self):
        listed = tenuto("bench", "list")
        if "slow-link" not in listed.stdout:
            self.skipTest("benchmarks are not built (TENUTO_BENCHMARKS)")
        trace = self.folder / "links.csv"
        trace.write_text("6;2_3;30\n18;off\n45;0_1,5_6;40\n56;off\n")
        found = subprocess.run(
            [TENUTO, "bench", "slow-link", "--replay", str(trace), "--steps", "60", "--faster",
             "10", "--json", "--keep", str(self.folder / "kept")],
            text=True, capture_output=True, timeout=600)
        self.assertEqual(found.returncode, 0, found.stderr)
        replay = json.loads(found.stdout)
        stretches = replay["stretches"]
        self.assertEqual([(of["first_step"], of["end_step"]) for of in stretches],
                         [(0, 6), (6, 18), (18, 45), (45, 56), (56, 60)])
        for slow in (stretches[1], stretches[3]):
            # Detected by the third step, reported when it is committed; a plan follows soon.
            self.assertIn(slow["found_after"], range(3, 6), slow)
            self.assertGreater(slow["planned_after"], slow["found_after"])
            self.assertGreaterEqual(slow["plans"], 1)
        # Plans use the higher estimate for another 20 steps; then the first plan returns.
        self.assertGreaterEqual(stretches[2]["planned_after"], 20)
        for mode in ("blocking 1f1b", "blocking zb", "offloaded zb"):
            for stretch in stretches:
                of = stretch[mode]
                self.assertAlmostEqual(of["median_ms"] / of["priced_ms"], 1, delta=0.01)
        for mode in ("blocking 1f1b", "blocking zb"):
            self.assertGreaterEqual(replay["totals"][mode]["over_adapted"], 1.2)
        picture = (self.folder / "kept" / "adapted-steps.svg").read_text()
        self.assertTrue(picture.startswith("<svg") and "is slow since" in picture)


if __name__ == "__main__":
    unittest.main()
