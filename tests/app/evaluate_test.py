"""Held-out data evaluated by the stages and workers of a run: Pipeline.evaluate, job.evaluate."""
import json
import os
import re
import subprocess
import unittest

from harness import LIMIT, long_case
from package_test import HERE, PACKAGE, PYTHON, Launch

SCRIPT = HERE / "package_evaluate.py"
STEPS = 6
LAYOUTS = {"two": (2, 2, 2), "four": (4, 1, 4), "one": (1, 1, 4)}


class Evaluate(Launch):
    def write_layout(self, layout, **more):
        stages, pipelines, micros = LAYOUTS[layout]
        self.write_module_job(
            job__steps=STEPS, parallel__stages=stages, parallel__pipelines=pipelines,
            parallel__micros=micros, optimizer__schedule="constant",
            resilience__numerics="reproducible", **more)

    def found(self, name):
        """What the workers of a run's evaluation have printed: each loss once, all alike."""
        folder = self.folder / "runs" / f"{name}-evaluation"
        logs = [log.read_text() for log in sorted(folder.glob("worker-*.log"))]
        each = [dict(re.findall(r"evaluated (\S+) (\S+)", log)) for log in logs]
        told = [one for one in each if one]
        self.assertTrue(told, logs)
        for one in told:
            self.assertEqual(one, told[0])
        return told[0]

    def evaluate(self, counts, run, name, flags=()):
        """Evaluates a run with the workers of the job at hand."""
        self.launch(SCRIPT, self.job, counts, run.folder, name=name, flags=flags)
        return self.found(name)

    def alone(self, counts, run):
        """Evaluates it in one process, without workers."""
        own = {key: value for key, value in os.environ.items()
               if not key.startswith(("TENUTO_DONE", "TENUTO_NEXT"))}
        ended = subprocess.run(
            [PYTHON, SCRIPT, self.job, counts, run.folder], capture_output=True, text=True,
            timeout=LIMIT, env={**own, "PYTHONPATH": PACKAGE})
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return dict(re.findall(r"evaluated (\S+) (\S+)", ended.stdout))

    def metrics_of(self, name):
        lines = (self.folder / "runs" / f"{name}-evaluation" / "metrics.jsonl").read_text()
        return [json.loads(line) for line in lines.splitlines()]

    @long_case
    def test_all_layouts_find_the_same_loss(self):
        """fit() and then evaluate(), twice: the last micro-batch of 11 rows has 3, and 2 rows are
        fewer than a micro-batch."""
        self.write_layout("two")
        run = self.launch(SCRIPT, self.job, "11,2", name="two")
        losses = self.found("two")
        self.assertEqual(sorted(losses), ["11", "2"])
        self.assertEqual(sorted(self.losses(run)), list(range(STEPS)))
        kept = run.checkpoints()
        self.assertEqual(kept[-1], STEPS)
        self.write_layout("four")
        self.assertEqual(self.evaluate("11,2,stream-11", run, "four"),
                         {**losses, "stream-11": losses["11"]})
        self.write_layout("one")
        self.assertEqual(self.evaluate("11", run, "one"), {"11": losses["11"]})
        for rows, loss in self.alone("11,2,stream-11", run).items():
            there = float.fromhex(losses[rows.removeprefix("stream-")])
            self.assertAlmostEqual(float.fromhex(loss), there, delta=1e-6 * there)
        line, = self.metrics_of("one")
        self.assertEqual((line["step"], line["loss"], line["tokens"]), (STEPS - 1, None, 0))
        self.assertEqual(line["validation_loss"], float.fromhex(losses["11"]))
        # The run that was evaluated is as it was.
        self.assertEqual(run.checkpoints(), kept)
        self.assertEqual(len(run.metrics()), STEPS)

    def test_a_worker_dies_in_the_pass(self):
        self.write_layout("two")
        run = self.launch(SCRIPT, self.job, "24", name="whole")
        with self.job.open("a") as job:
            job.write(f'[[fault]]\nkind = "kill"\nworker = "1.0"\nat_step = {STEPS}\nat_op = 1\n')
        self.assertEqual(self.evaluate("24", run, "troubled"), self.found("whole"))
        events = [json.loads(line)["reason"] for line in
                  (self.folder / "runs" / "troubled-evaluation" / "events.jsonl").read_text()
                  .splitlines()]
        self.assertTrue(any("the held-out pass is done again without worker 2" in event
                            for event in events), events)

    def test_a_run_without_a_checkpoint_is_refused(self):
        self.write_layout("one")
        run = self.launch(SCRIPT, self.job, "2", self.folder / "nothing", name="none", expected=2)
        self.assertIn("nothing holds no checkpoint", run.errors)

    def test_a_run_is_not_replaced_by_its_own_evaluation(self):
        """The same without a script, by the job's key."""
        self.write_job(job__steps=4, job__checkpoint_every=0)
        run = self.train()
        own = self.start("--overwrite", f"--job.evaluate={run.folder}")
        self.assertEqual(own.finish(), 2)
        self.assertIn("belongs to the run", own.errors)
        self.assertEqual(run.checkpoints(), [4])
        other = self.train(f"--job.evaluate={run.folder}", "--json", name="other")
        said = json.loads(other.output)
        self.assertEqual((said["steps"], said["validation_step"], said["last_loss"]), (0, 4, None))
        self.assertIsNotNone(said["validation_loss"])
        self.assertEqual(other.checkpoints(), [])


if __name__ == "__main__":
    unittest.main()
