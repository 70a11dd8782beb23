"""tenuto simulate --days: figures, files, and one sentence for each wrong input."""
import json
import subprocess
import unittest
import xml.etree.ElementTree

from harness import LIMIT, TENUTO, Case

HEAD = "time_s,kind,target,factor,duration_s\n"
SMALL = ("simulate", "--days", "0.1", "--stages", "3", "--pipelines", "4", "--micros", "6")
TROUBLED = (*SMALL, "--link-ms", "1", "--mtbf-hours", "2", "--repair-hours", "0.3",
            "--straggler-hours", "4", "--slow-link-hours", "4", "--spare-micros", "2")


class Days(Case):
    def run_tenuto(self, *arguments):
        return subprocess.run([TENUTO, *map(str, arguments)], capture_output=True, text=True,
                              timeout=LIMIT)

    def told(self, *arguments):
        """The JSON of a command that ends well."""
        ended = self.run_tenuto(*arguments, "--json")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return json.loads(ended.stdout)

    def refused(self, sentence, *arguments):
        ended = self.run_tenuto(*arguments)
        self.assertEqual((ended.returncode, ended.stdout), (2, ""), arguments)
        self.assertIn(sentence, ended.stderr)
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)

    def csv(self, lines):
        path = self.folder / "week.csv"
        path.write_text(HEAD + lines)
        return path

    def test_rows_add_up(self):
        tree = self.told(*TROUBLED)
        self.assertEqual(tree["workers"], 12)
        self.assertGreater(tree["deaths"], 0)
        for row in tree["rows"]:
            parts = sum(row[name] for name in
                        ("training_s", "lost_s", "waiting_s", "unfinished_s"))
            self.assertAlmostEqual(parts + sum(row["pauses_s"].values()), 8640, places=3)
            self.assertLessEqual(row["share"], 1)
        self.assertEqual(tree["rows"][0]["name"], "all remedies")
        self.assertGreater(tree["rows"][0]["share"], tree["rows"][-1]["share"])

    def test_a_seed_repeats_and_steps_agree(self):
        self.assertEqual(self.told(*TROUBLED), self.told(*TROUBLED))
        self.assertNotEqual(self.told(*TROUBLED), self.told(*TROUBLED, "--seed", 5))
        self.assertEqual(self.told(*TROUBLED), self.told(*TROUBLED, "--step-by-step"))

    def test_recorded_troubles(self):
        path = self.csv("3600,dead-worker,1.2,,600\n100,slow-worker,0.0,2,\n50,slow-link,3.1,9,5\n")
        tree = self.told(*SMALL, "--failures", path)
        self.assertEqual([tree[name] for name in ("deaths", "slow_workers", "slow_links")],
                         [1, 1, 1])
        restarts = tree["rows"][-1]["pauses_s"]["restarts"]
        self.assertEqual(restarts, 600)

    def test_text_and_picture(self):
        picture = self.folder / "week.svg"
        ended = self.run_tenuto(*TROUBLED, "--picture", picture)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertIn("without re-routing", ended.stdout)
        root = xml.etree.ElementTree.parse(picture).getroot()
        curves = [element for element in root if element.tag.endswith("polyline")]
        self.assertEqual(len(curves), 3)

    def test_a_picture_that_cannot_be_written(self):
        ended = self.run_tenuto(*SMALL, "--picture", self.folder / "nosuch" / "week.svg")
        self.assertEqual((ended.returncode, ended.stdout), (1, ""))

    def test_wrong_flags(self):
        for sentence, *arguments in (
                ("--days: expected a number from", "simulate", "--days", "-1"),
                ("--days: expected a number from", "simulate", "--days", "0"),
                ("--order", *SMALL, "--order", "1f1b"),
                ("--sync", *SMALL, "--sync", "x:2"),
                ("--days", "simulate", "--mtbf-hours", "3"),
                ("--repair-hours: expected a number from", *SMALL, "--repair-hours", "-1"),
                ("expected one with --days", *SMALL, "--forward-ms", "1,2,3"),
                ("a step takes no time", *SMALL, "--forward-ms", "0", "--backward-input-ms", "0",
                 "--backward-weight-ms", "0"),
                ("stages x pipelines x micro-batches: expected at most 30000000",
                 "simulate", "--days", "1", "--pipelines", "100000", "--micros", "1000"),
                ("a step may last longer than 73 years", *SMALL, "--forward-ms", "1e9"),
                ("expected at most 10000000 troubles on average", *SMALL, "--mtbf-hours", "1e-9"),
                ("cannot read", *SMALL, "--failures", self.folder / "nosuch.csv")):
            self.refused(sentence, *arguments)

    def test_wrong_lines(self):
        for line, sentence in (
                ("1,death,0.0,,", "week.csv:3: expected the kind dead-worker, slow-worker or "
                 "slow-link, found 'death'"),
                ("1,dead-worker,4.0,,", "week.csv:3: expected the target P.S with a pipeline from "
                 "0 to 3 and a stage from 0 to 2, found '4.0'"),
                ("x,dead-worker,0.0,,", "week.csv:3: expected time_s"),
                ("1,slow-link,0.1,,", "week.csv:3: expected factor, a number from 1 to 1000"),
                ("1", "week.csv:3: expected the 5 fields")):
            path = self.csv("0,dead-worker,0.0,,\n" + line)
            self.refused(sentence, *SMALL, "--failures", path)

    def test_the_picture_is_not_the_input(self):
        path = self.csv("")
        self.refused("--failures reads the same file", *SMALL, "--failures", path, "--picture",
                     path)


if __name__ == "__main__":
    unittest.main()
