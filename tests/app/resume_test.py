"""Resumed runs: same losses, on the same layout or another; never from a damaged checkpoint."""
import json
import shutil
import subprocess
import unittest

from harness import Case, LIMIT, TENUTO, TERM


class Resume(Case):
    def interrupted(self, *arguments, name):
        run = self.start(*arguments, "--job.checkpoint_every=0", name=name)
        run.wait_for_steps(4)
        run.process.send_signal(TERM)
        self.assertIn(run.finish(), (143, 0))
        return run

    def test_the_same_numbers(self):
        expected = self.losses(self.train(name="whole"))
        run = self.interrupted(name="parts")
        steps = len(run.metrics())
        again = self.train("--resume", name="parts")
        self.assertEqual(self.losses(again), expected)
        epochs = [line["epoch"] for line in again.metrics()]
        self.assertEqual(epochs, [1] * steps + [2] * (20 - steps))
        self.assertTrue((run.folder / "plan-2.json").exists())

    def test_another_layout(self):
        expected = self.losses(self.train(name="whole"))
        self.interrupted(name="parts")
        again = self.train("--resume", "--parallel.pipelines=1", "--parallel.micros=4",
                           "--parallel.order=gpipe", name="parts")
        for step, loss in self.losses(again).items():
            self.assertAlmostEqual(loss, expected[step], delta=1e-6)

    def test_from_an_older_step(self):
        run = self.train()
        before = self.losses(run)
        again = self.train("--resume", "--from-step=10")
        self.assertEqual(self.losses(again), before)
        self.assertEqual(again.checkpoints(), [10, 15, 20])
        self.assertTrue((again.folder / "checkpoint-15.aside" / "manifest.json").exists())
        self.assertIn("the checkpoint of step 15 is set aside", again.output)
        self.assertIn("holds no checkpoint of step 11; there are: 10, 15, 20",
                      self.train("--resume", "--from-step=11", expected=2).errors)

    def test_at_once_after_the_launcher_was_killed(self):
        run = self.start("--job.steps=40", "--device.forward_ms=10")
        folder = run.folder
        run.wait_for_steps(6)
        run.process.kill()
        run.process.wait(LIMIT)  # for the launcher alone, not for the processes it has started
        again = self.train("--resume", "--job.steps=12")
        self.assertEqual([line["step"] for line in again.metrics()], list(range(12)))
        # A new run replaces this one, and answers `tenuto status`. Later, a new run whose workers
        # cannot start leaves the earlier run untouched.
        run = self.start("--overwrite", "--job.steps=4000")
        run.wait_until(lambda: self.is_running(run), "it can be asked")
        run.process.send_signal(TERM)
        self.assertEqual(run.finish(), 143)
        status = subprocess.run([TENUTO, "status", str(folder)], capture_output=True, text=True,
                                timeout=LIMIT)
        self.assertEqual(status.returncode, 2)
        self.assertIn("is not a live run: it ended at step", status.stderr)
        self.write_job(coordinator__launch=["sh", "-c", "exit 3"])
        self.assertIn(f"the earlier run in {folder} has not been replaced",
                      self.train("--overwrite", expected=1).errors)

    @staticmethod
    def is_running(run):
        status = subprocess.run([TENUTO, "status", str(run.folder), "--json"],
                                capture_output=True, text=True, timeout=LIMIT)
        return status.returncode == 0 and json.loads(status.stdout)["situation"] == "running"

    def test_a_finished_run(self):
        self.train()
        self.assertIn("all 20 steps of this run are done", self.train("--resume").errors)

    def test_nothing_to_resume(self):
        self.assertIn("nothing to resume", self.train("--resume", expected=2).errors)
        self.assertFalse((self.folder / "runs" / "small").exists())

    def test_another_model(self):
        self.train()
        self.assertIn("model.width", self.train("--resume", "--model.width=64", "--job.steps=30",
                                                expected=2).errors)


class Damage(Case):
    def test_a_damaged_checkpoint_is_refused_and_an_older_one_named(self):
        run = self.train()
        newest = run.folder / "checkpoint-20"
        kept = self.folder / "kept"
        shutil.copytree(newest, kept)
        shard = newest / "stage-1.safetensors"

        def flip():
            data = bytearray(shard.read_bytes())
            data[len(data) // 2] ^= 1
            shard.write_bytes(data)

        def manifest(change):
            path = newest / "manifest.json"
            content = json.loads(path.read_text())
            change(content)
            path.write_text(json.dumps(content))

        damages = {
            "truncated": lambda: shard.write_bytes(shard.read_bytes()[:-1]),
            "flipped": flip,
            "missing": shard.unlink,
            "no manifest": (newest / "manifest.json").unlink,
            "half a manifest": lambda: (newest / "manifest.json").write_text('{"version": 1'),
            "wrong type": lambda: manifest(lambda m: m.update(step="twenty")),
            "outside": lambda: manifest(lambda m: m["files"][0].update(name="../../x")),
        }
        for name, damage in damages.items():
            with self.subTest(name):
                damage()
                content = {f.name: f.read_bytes() for f in newest.iterdir()}
                refused = self.train("--resume", "--job.steps=30", expected=2)
                self.assertIn("checkpoint-20", refused.errors)
                self.assertIn("the checkpoint of step 15 is whole: choose it with --from-step 15",
                              refused.errors)
                self.assertEqual({f.name: f.read_bytes() for f in newest.iterdir()}, content)
                self.assertEqual(len(run.metrics()), 20)
            shutil.rmtree(newest)
            shutil.copytree(kept, newest)
        self.train("--resume", "--job.steps=22")


if __name__ == "__main__":
    unittest.main()
