"""Traces of a live run: promised beside measured ops, and what was found and decided meanwhile."""
import json
import re
import subprocess
import unittest

from harness import Case, LIMIT, TENUTO


def tenuto(*arguments):
    return subprocess.run([TENUTO, *map(str, arguments)], text=True, capture_output=True,
                          timeout=LIMIT)


class Timeline(Case):
    def rows(self, run, step):
        return json.loads((run.folder / f"trace-{step}.json").read_text())["traceEvents"]

    def steps(self, run):
        return sorted(int(re.fullmatch(r"trace-(\d+)\.json", path.name)[1])
                      for path in run.folder.glob("trace-*.json"))

    def check_nesting(self, rows):
        """Slices of a thread lie one after the other, or one wholly within the other."""
        tracks = {}
        for row in rows:
            if row["ph"] == "X":
                start = round(row["ts"] * 1000)
                tracks.setdefault((row["pid"], row["tid"]), []).append(
                    (start, start + round(row["dur"] * 1000)))
        for place, slices in tracks.items():
            open_ones = []
            for start, end in sorted(slices, key=lambda slice: slice[0]):
                while open_ones and open_ones[-1] <= start:
                    open_ones.pop()
                self.assertTrue(not open_ones or end <= open_ones[-1], place)
                open_ones.append(end)

    def test_a_slow_link_is_shown_with_its_promises_and_decisions(self):
        self.write_job(job__steps=50, job__checkpoint_every=0, job__validate_every=0,
                       job__validate_micros=0, job__trace_first=2, job__trace_last=1,
                       job__trace_after=2, parallel__stages=4, parallel__pipelines=1,
                       parallel__micros=12, parallel__order="zb-h1", optimizer__kind="sgd")
        with self.job.open("a") as file:
            file.write('[[fault]]\nkind = "slow-link"\nlink = 1\nlatency_ms = 15\nat_step = 20\n')
        run = self.train()
        steps = self.steps(run)
        self.assertLessEqual({0, 1, 49}, set(steps))
        detected = next(event for event in run.events() if event["event"] == "detection")
        self.assertTrue([step for step in steps if detected["step"] <= step < 49], steps)
        marks = {}
        for step in steps:
            rows = self.rows(run, step)
            self.check_nesting(rows)
            self.assertTrue([row for row in rows if row.get("cat") == "promised"], step)
            self.assertEqual(sum(row["ph"] == "s" for row in rows),
                             sum(row["ph"] == "f" for row in rows))
            for row in rows:
                if row["ph"] == "i":
                    marks.setdefault(row["name"], set()).add(row["args"]["reason"])
        self.assertIn(detected["reason"], marks["detection"])
        self.assertTrue([reason for reason in marks["decision"] if "is proposed" in reason], marks)
        told = tenuto("analyze", run.folder / "trace-1.json", "--json")
        self.assertEqual(told.returncode, 0, told.stderr)
        promised = json.loads(told.stdout)["promised"]
        self.assertEqual({of["stage"] for of in promised}, {0, 1, 2, 3})
        self.assertEqual({of["ops"] for of in promised}, {12})
        for of in promised:
            self.assertAlmostEqual(of["promised_ms"], of["recorded_ms"],
                                   delta=0.5 * of["recorded_ms"])
        self.assertIn("as promised", tenuto("analyze", run.folder / "trace-1.json").stdout)

    def test_traces_of_a_live_run_are_asked_for(self):
        run = self.start("--job.steps=5000", "--job.checkpoint_every=0")
        run.wait_for_steps(3)
        wish = tenuto("inject", run.folder, "trace=2")
        self.assertEqual(wish.returncode, 0, wish.stderr)
        last = int(re.fullmatch(r"trace=2: up to step (\d+)\n", wish.stdout)[1])
        run.wait_for_steps(last + 3)
        self.assertEqual(self.steps(run), [last - 1, last])
        refused = tenuto("inject", run.folder, "trace=0")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("expected 1 to", refused.stderr)
        run.process.terminate()
        self.assertEqual(run.finish(), 143)


if __name__ == "__main__":
    unittest.main()
