"""Programs that get too little memory end with a sentence and exit code 1, never by a signal."""
import os
import resource
import subprocess
import tempfile
import unittest

TENUTO = os.environ["TENUTO"]
WORKER = os.path.join(os.path.dirname(TENUTO), "tenuto-worker")
MEBIBYTE = 1 << 20


def run(words, mebibytes, **options):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes * MEBIBYTE, mebibytes * MEBIBYTE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return subprocess.run(
        words, capture_output=True, text=True, timeout=120, preexec_fn=limit, **options
    )


def least_to_start():
    """The least memory, in MiB, with which the system's loader starts the program."""
    for mebibytes in range(40, 4000, 20):
        done = run([TENUTO, "schedule", "list"], mebibytes)
        if done.returncode == 0:
            return mebibytes
    raise AssertionError("the program does not start with 4 GiB")


@unittest.skipIf(os.environ.get("TENUTO_SANITIZE"), "sanitizers take terabytes of addresses")
class Memory(unittest.TestCase):
    def expect_sentence(self, done, mebibytes):
        self.assertEqual(done.returncode, 1, (mebibytes, done.stderr))
        self.assertIn("memory", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_plans_larger_than_memory(self):
        least = least_to_start()
        for mebibytes in (least + 60, least + 200):
            for words in (
                ["simulate", "--stages", "1000", "--micros", "2000"],
                ["simulate", "--stages", "2", "--pipelines", "4096", "--micros", "1"],
                ["simulate", "--stages", "64", "--micros", "20000", "--order", "auto"],
                ["schedule", "show", "--order", "1f1b", "--stages", "1000", "--micros", "2000"],
            ):
                with self.subTest(words=words, mebibytes=mebibytes):
                    self.expect_sentence(run([TENUTO, *words], mebibytes), mebibytes)

    def test_no_signal_at_any_limit(self):
        """Whichever allocation fails first, the exit code is 0 or 1, or 127 from the loader."""
        least = least_to_start()
        words = [TENUTO, "simulate", "--stages", "16", "--micros", "256", "--order", "auto"]
        for mebibytes in range(least - 20, least + 60, 10):
            done = run(words, mebibytes)
            self.assertIn(done.returncode, (0, 1, 127), (mebibytes, done.stderr))

    def test_jobs_larger_than_memory(self):
        """Before any process starts, the memory that a run needs is compared with what is free."""
        job = """
[job]
name = "large"
steps = 1
[data]
paths = ["/dev/null"]
[parallel]
stages = 2
"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(job)
            for name, flags in {
                "a model of 40 layers of width 65536": ["--model.width=65536", "--model.layers=40"],
                "and 1000000 rows a micro-batch": ["--parallel.micro_rows=1000000"],
                "2000 workers on this host": [
                    "--parallel.pipelines=1000", "--parallel.micros=1", "--device.kind=paced"],
                "messages of 1000000000000 bytes": [
                    "--device.message_bytes=1000000000000", "--device.kind=paced"],
            }.items():
                with self.subTest(name):
                    done = run([TENUTO, "train", path, *flags], 2000, cwd=folder)
                    self.expect_sentence(done, 2000)
                    self.assertIn(name, done.stderr)
                    self.assertRegex(done.stderr, r"needs [0-9.]+ [MG]iB of memory, and \d+ MiB ")
                    self.assertFalse(os.path.exists(os.path.join(folder, "runs")))

    def test_a_run(self):
        """The launcher, the coordinator and the workers."""
        job = """
[job]
name = "small"
steps = 2
[parallel]
stages = 2
[device]
kind = "paced"
"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(job)
            for mebibytes in (100, 150, 250):
                done = run([TENUTO, "train", path, "--overwrite"], mebibytes, cwd=folder)
                self.assertGreaterEqual(done.returncode, 0, (mebibytes, done.stderr))
                self.assertNotEqual(done.returncode, 134, done.stderr)
            done = run([WORKER, "--describe"], 100)
            self.assertIn(done.returncode, (0, 1, 127), done.stderr)


if __name__ == "__main__":
    unittest.main()
