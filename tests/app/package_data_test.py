"""The data of the Python package: token files, streams, and the processes that load ahead."""
import json
import os
import pathlib
import subprocess
import unittest

from harness import LIMIT, Case
from package_test import PACKAGE, PYTHON, Launch

SCRIPT = pathlib.Path(__file__).resolve().parent / "package_data.py"


def call(*words):
    """Runs a part of package_data.py. Returns when no process has its output any more, so all of
    its loaders have ended."""
    return subprocess.run([PYTHON, SCRIPT, *map(str, words)], check=False, capture_output=True,
                          text=True, timeout=LIMIT, env={**os.environ, "PYTHONPATH": PACKAGE})


class Data(Case):
    def read(self, *words):
        ended = call(*words)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)

    def expect_words(self, sentences, expected):
        self.assertEqual(len(sentences), len(expected), sentences)
        for sentence, words in zip(sentences, expected):
            self.assertIn(words, sentence)
            self.assertNotIn("\n", sentence)

    def test_token_files(self):
        found = self.read("tokens", self.folder)
        for name, third in (("uint8", 200), ("uint16", 60000), ("int32", 60000)):
            self.assertEqual(found[name], [[[0, 1, third, 255], [1, third, 255, 7]],
                                           [[7, 8, 9, 10], [8, 9, 10, 11]]])
        self.expect_words(found["refused"], [
            "IndexError: row 2 of ", "IndexError: row -1 of ",
            "has 9 tokens: expected at least 10, which is one row and the token after it",
            "has 18 bytes, which is no multiple of 4, the size of a token of type int32",
            "dtype is torch.float32: expected one of uint8, uint16, int32",
            "length is 0: expected a number of tokens, 1 or more"])

    def test_streams(self):
        found = self.read("streams")
        self.assertEqual(found["found"], {
            # Ten rows, of which a step takes eight: the third step begins in the second epoch.
            "forwards": [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [2, 3]],
            "a replica": [[2, 3], [6, 7], [0, 1], [4, 5], [8, 9]],
            "resumed": [[6, 7], [8, 9]],
            "back": [[6, 7], [2, 3], [0, 1], [6, 7], [2, 3]]})
        self.assertEqual(found["held_out"], 2 * [[0, 1], [2, 3], [4, 5]])
        self.assertEqual(found["evaluated"], [[0, 1], [2, 3], [4], [2, 3]])
        self.expect_words(found["refused"], [
            "dataset is empty: expected at least one row",
            "dataset has no rows when it begins again: expected that each iter() of it"])

    def test_buffers_move_to_the_device(self):
        self.assertEqual(self.read("buffers"), {
            "cards": ["0.card"], "one": True, "same": True, "values": [1.0, 1.0],
            "there": [["shared", "meta"], ["card", "cpu"], ["shared", "meta"], ["own", "meta"]]})

    def test_loaders_change_nothing(self):
        forecast = self.read("loaders")["forecast"]
        self.assertEqual(forecast, [
            # The first iteration: this worker's pipeline is taken to be the second of two.
            [[False, 0, 3], [False, 1, 1], [False, 1, 3]],
            [[False, 1, 1], [False, 1, 3], [False, 2, 1]],
            [[False, 1, 3], [False, 2, 1], [False, 2, 3]],
            # It now computes micro-batches of the other pipeline as well.
            [[False, 1, 3], [False, 2, 1], [False, 2, 3]],
            [[False, 1, 3], [False, 2, 1], [False, 2, 3]],
            [[False, 2, 1], [False, 2, 3], [False, 2, 0]],
            [[False, 2, 0], [False, 2, 2], [False, 2, 3]],
            # A held-out pass, of which this worker has one micro-batch.
            [[False, 2, 0], [False, 2, 2], [False, 2, 3]],
            # The last iteration, and it has asked for one alone in the iteration before.
            []])

    def test_what_loaders_refuse(self):
        self.expect_words(self.read("refusals"), [
            "RuntimeError: KeyError: 'no such picture' (", "KeyError: 'no such picture'",
            "was killed by SIGKILL: perhaps the memory was too small",
            "the data set gives a tensor of layout torch.sparse_coo on cpu: expected a dense one",
            "RuntimeError: dataset has len() 11, and its row ",
            "ValueError: dataset has len() 11, and its row ",
            "TypeError: dataset (function) cannot be given to loader processes (",
            "TypeError: validation is TextIOWrapper: expected a function of (seed, iteration, ",
            "TypeError: validation (Busy) cannot be given to loader processes (cannot pickle ",
            "loaders is -1: expected a number of processes, 0 or more",
            "loaders is True: expected a number of processes, 0 or more",
            "loaders is 2, and data.paths are read without loaders: give a data set"])

    def test_loaders_end_with_a_worker_that_is_killed(self):
        ended = call("ends", self.folder)
        self.assertEqual(ended.returncode, -9, ended.stderr)

    def test_a_script_that_loaders_cannot_import(self):
        ended = call("unguarded")
        self.assertIn("has ended with exit code 1: ", ended.stdout)
        self.assertIn('must stand in it under `if __name__ == "__main__":`', ended.stdout)
        self.assertIn("fit() is called while a loader imports the script", ended.stderr)


class Training(Launch):
    def test_a_run_with_loaders_and_trouble(self):
        """Two loaders for each worker, of which one dies and returns; against a run without."""
        file = self.folder / "bytes"
        file.write_text("".join(f"line {number} of some text\n" for number in range(400)))
        settings = {"job__checkpoint_every": 0, "job__validate_micros": 2,
                    "job__validate_every": 2, "optimizer__schedule": "constant",
                    "resilience__numerics": "reproducible"}
        self.write_module_job(job__steps=1000000, **settings)
        with self.job.open("a") as job:
            job.write('[[fault]]\nkind = "kill"\nworker = "0.1"\nat_step = 3\nat_op = 2\n'
                      '[[fault]]\nkind = "start"\nworker = "0.1"\nat_step = 6\n')
        run = self.begin(SCRIPT, "train", self.job, file, 2)

        run.wait_for_steps(1)
        self.wait_for_event(run, "has the state of version")
        run.wait_for_steps(len(run.metrics()) + 5)
        self.end(run)
        losses = self.losses(run)
        self.write_module_job(job__steps=len(losses), **settings)
        whole = self.launch(SCRIPT, "train", self.job, file, 0, name="whole")
        self.assertEqual(self.losses(whole), losses)
        # Before the death, the held-out pass has read the same rows of its stream.
        held_out = [next(line for line in each.metrics() if "validation_loss" in line)
                    for each in (run, whole)]
        self.assertEqual(held_out[0]["step"], held_out[1]["step"])
        self.assertAlmostEqual(held_out[0]["validation_loss"], held_out[1]["validation_loss"],
                               delta=1e-6)


if __name__ == "__main__":
    unittest.main()
