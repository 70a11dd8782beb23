"""The scripts of bench/compare, with their small cases: each prints its table."""
import json
import os
import pathlib
import re
import subprocess
import unittest

from harness import LIMIT, TENUTO, another_case, long_case

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare"
PYTHON = os.environ["TENUTO_TORCH_PYTHON"]


class Compare(unittest.TestCase):
    def check(self, script):
        done = subprocess.run([PYTHON, COMPARE / script, "--quick", "--json", "--tenuto", TENUTO],
                              capture_output=True, text=True, timeout=1500)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertTrue(rows)

    @another_case
    def test_each_program_begins(self):
        """All programs in Python below bench/ at least find what they import."""
        programs = [path for path in sorted(COMPARE.parent.rglob("*.py"))
                    if re.search(r"^if __name__ == .__main__.:$", path.read_text(), re.MULTILINE)
                    and re.search("parse_args|read_flags", path.read_text())]
        self.assertGreater(len(programs), 15)
        for program in programs:
            done = subprocess.run([PYTHON, program, "--help"], capture_output=True, text=True,
                                  timeout=LIMIT)
            self.assertEqual(done.returncode, 0, f"{program}: {done.stderr}")
            self.assertIn("usage: ", done.stdout)

    @another_case
    @long_case
    def test_pipelines(self):
        self.check("pipelines.py")

    @another_case
    @long_case
    def test_after_a_kill(self):
        self.check("after_a_kill.py")

    @another_case
    @long_case
    def test_late_rank(self):
        self.check("late_rank.py")

    @another_case
    @long_case
    def test_python_modules(self):
        self.check("python_modules.py")


if __name__ == "__main__":
    unittest.main()
