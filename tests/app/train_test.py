"""A run from begin to end, and what it refuses before it begins."""
import json
import math
import subprocess
import unittest

from harness import Case, SANITIZED, TENUTO, another_case


class Train(Case):
    def test_a_run_writes_all_its_files(self):
        self.write_job(job__trace_steps=[3])
        run = self.train()
        self.assertEqual(run.errors, "")
        for word in ("first loss", "last loss", "validation loss", "checkpoint  "):
            self.assertIn(word, run.output)
        metrics = run.metrics()
        self.assertEqual([line["step"] for line in metrics], list(range(20)))
        for line in metrics:
            self.assertTrue(math.isfinite(line["loss"]))
            self.assertGreater(line["step_ms"], 0)
            self.assertGreater(line["tokens_per_second"], 0)
            self.assertEqual((line["plan"], line["epoch"]), ("1f1b", 1))
        self.assertEqual([line["step"] for line in metrics if "validation_loss" in line], [9, 19])
        self.assertEqual(run.checkpoints(), [10, 15, 20])  # keep = 3
        manifest = json.loads((run.folder / "checkpoint-20" / "manifest.json").read_text())
        self.assertEqual(manifest["step"], 20)
        self.assertEqual([file["name"] for file in manifest["files"]],
                         ["stage-0.safetensors", "stage-1.safetensors"])
        kinds = [event["event"] for event in run.events()]
        self.assertEqual((kinds[0], kinds.count("checkpoint"), kinds[-1]), ("start", 4, "end"))
        names = {entry.name for entry in run.folder.iterdir()}
        self.assertLessEqual({"config.toml", "plan-1.json", "trace-3.json", "worker-0.log",
                              "worker-3.log"}, names)
        trace = json.loads((run.folder / "trace-3.json").read_text())
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        self.assertIn("PP:1F0", {event.get("name") for event in events})
        self.assertFalse([name for name in names if name.endswith(".tmp")])

    def test_a_checkpoint_after_every_step(self):
        # The manifest of one checkpoint is written while workers write the next checkpoint.
        run = self.train("--job.checkpoint_every=1", "--job.keep=2", "--job.steps=40")
        self.assertEqual(run.checkpoints(), [39, 40])
        self.assertFalse(list(run.folder.glob("*.tmp")))
        self.assertEqual([event["event"] for event in run.events()].count("checkpoint"), 40)

    def test_json_is_one_object(self):
        run = self.train("--json")
        result = json.loads(run.output)
        self.assertEqual((result["exit_code"], result["steps"], result["checkpoint_step"]),
                         (0, 20, 20))
        self.assertEqual(result["last_loss"], run.metrics()[-1]["loss"])
        self.assertIn("step 20/20", run.errors)

    @another_case
    def test_the_effective_settings_train_the_same_run(self):
        first = self.train("--parallel.order=gpipe")
        self.job = first.folder / "config.toml"
        second = self.train(name="again")
        self.assertEqual(self.losses(first), self.losses(second))
        self.assertEqual(second.metrics()[0]["plan"], "gpipe")

    @another_case
    def test_the_order_changes_no_number(self):
        expected = self.losses(self.train(name="1f1b"))
        for order in ("gpipe", "zb-h1"):
            self.assertEqual(self.losses(self.train(f"--parallel.order={order}", name=order)),
                             expected)

    def test_workers_with_two_stages_each(self):
        expected = self.losses(self.train("--parallel.stages=4", "--parallel.micros=4",
                                          name="four"))
        orders = ("dualpipe-v", "interleaved", "interleaved-zb", "looped-bfs", "zb-v")
        for order in orders[:1] if SANITIZED else orders:
            run = self.train(f"--parallel.order={order}", "--parallel.micros=4", name=order)
            self.assertEqual(self.losses(run), expected)
            manifest = json.loads((run.folder / "checkpoint-20" / "manifest.json").read_text())
            self.assertEqual([file["name"] for file in manifest["files"]],
                             [f"stage-{stage}.safetensors" for stage in range(4)])
            self.assertIn("stages ", (run.folder / "worker-0.log").read_text())

    @another_case
    def test_two_runs_at_once(self):
        first, second = self.start(name="one"), self.start(name="two")
        self.assertEqual((first.finish(), second.finish()), (0, 0))
        self.assertEqual(self.losses(first), self.losses(second))

    def test_every_way_of_waiting_trains_the_same_run(self):
        losses = [self.losses(self.train(f"--network.progress={progress}", name=progress))
                  for progress in ("event", "auto", "poll")]
        self.assertEqual(losses, losses[:1] * 3)

    def test_print_config_trains_nothing(self):
        run = self.train("--print-config")
        self.assertIn("paced", run.output)
        self.assertFalse(run.folder.exists())


class Refusals(Case):
    def refused(self, *arguments, expected=2, **more):
        run = self.train(*arguments, expected=expected, **more)
        self.assertEqual(run.output, "")
        return run.errors

    def test_bad_settings_write_nothing(self):
        for arguments, word in (
                (["--optimizer.klip=1"], "clip"),
                (["--parallel.stages=two"], "parallel.stages"),
                (["--parallel.order=1f2b"], "1f1b"),
                (["--network.wire=memory"], "use 'auto'"),
                (["--device.kind=cpu", "--data.paths=nowhere"], "nowhere"),
                (["--frobnicate"], "--section.key=value"),
                (["--resume", "--from-step=-3"], "--from-step -3: expected 0 or more"),
                (["--resume", "--overwrite"], "--resume")):
            with self.subTest(arguments):
                self.assertIn(word, self.refused(*arguments))
                self.assertFalse((self.folder / "runs").exists())

    def test_a_missing_job_is_refused(self):
        self.job.unlink()
        self.assertIn("job.toml", self.refused())
        for words, sentence in (
                (["train"], "job"),
                (["train", ""], "the name of the job file is empty"),
                (["train", "", "--print-config"], "the name of the job file is empty"),
                (["status", ""], "the name of the run is empty"),
                (["sample", str(self.folder)], "is not the folder of a run"),
                (["worker", "--coordinator", "a:1", "--job", "j", "--worker", "-1"],
                 "--worker -1: workers are numbered from 0"),
                (["worker", "--coordinator", "a", "--job", "j", "--worker", "0"],
                 "--coordinator 'a': expected HOST:PORT")):
            with self.subTest(words):
                nothing = subprocess.run([TENUTO, *words], capture_output=True, text=True)
                self.assertEqual(nothing.returncode, 2)
                self.assertIn(sentence, nothing.stderr)

    def test_an_impossible_plan_is_refused_with_3(self):
        sentence = self.refused("--parallel.memory=1", "--parallel.stages=4", expected=3)
        self.assertIn("memory", sentence)
        self.assertFalse((self.folder / "runs").exists())

    def test_a_run_is_never_replaced_silently(self):
        before = self.train()
        metrics = before.metrics()
        sentence = self.refused()
        for word in ("--resume", "--overwrite", "--job.name"):
            self.assertIn(word, sentence)
        self.assertEqual(before.metrics(), metrics)
        after = self.train("--overwrite", "--job.steps=10")
        self.assertEqual(len(after.metrics()), 10)
        self.assertEqual(after.checkpoints(), [5, 10])

    def test_a_folder_in_use_is_refused(self):
        first = self.start("--job.steps=2000")
        first.wait_for_steps(1)
        for beginning in ([], ["--resume"], ["--overwrite"]):
            self.assertIn(f"in use by process {first.process.pid}", self.refused(*beginning))
        first.process.terminate()
        self.assertEqual(first.finish(), 143)

    def test_a_missing_network_device_is_refused(self):
        sentence = self.refused("--network.device=nothing0")
        self.assertIn("nothing0", sentence)


if __name__ == "__main__":
    unittest.main()
