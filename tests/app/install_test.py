"""`cmake --install` into an empty prefix gives a program that works."""
import os
import pathlib
import subprocess
import unittest

import harness


class Install(harness.Case):
    def test_an_installed_tenuto_trains(self):
        prefix = self.folder / "prefix"
        subprocess.run(["cmake", "--install", os.environ["TENUTO_BUILD"], "--prefix", str(prefix)],
                       check=True, capture_output=True, timeout=100)
        installed = prefix / "bin" / "tenuto"
        self.assertTrue((prefix / "bin" / "tenuto-worker").exists())
        documents = {path.name for path in pathlib.Path(prefix, "share").rglob("*")}
        self.assertLessEqual({"LICENSE", "README.md"}, documents)
        version = subprocess.run([installed, "--version"], text=True, capture_output=True,
                                 timeout=100)
        self.assertEqual(version.returncode, 0)
        self.assertRegex(version.stdout, r"tenuto 0\.1\.0 \(commit .*\)\nUCX 1\..*\n.*torch")
        before, harness.TENUTO = harness.TENUTO, str(installed)
        self.addCleanup(setattr, harness, "TENUTO", before)
        self.assertEqual(len(self.train("--job.steps=3").metrics()), 3)


if __name__ == "__main__":
    unittest.main()
