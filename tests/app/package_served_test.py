"""Modules of a script in the sync modes, whose parameters servers or replicas keep by ranges."""
import json
import os
import subprocess

from harness import LIMIT, another_case
from package_test import HERE, PACKAGE, PYTHON, Launch

# Loads the model of the first run, and of the second: the largest difference of a parameter, and
# the difference of the losses that an evaluation in this process finds.
COMPARE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import package_model, tenuto
model, loss, data = package_model.MODELS["rows"]
pipeline = tenuto.Pipeline(model, loss=loss, config=sys.argv[2])
one, two = (list(pipeline.load(run).parameters()) for run in sys.argv[3:])
evaluated = [pipeline.evaluate(data, run) for run in sys.argv[3:]]
print(json.dumps([max((a - b).abs().max().item() for a, b in zip(one, two)),
                  abs(evaluated[0] - evaluated[1])]))
"""


class Served(Launch):
    def write_served_job(self, stages=1, **more):
        self.write_module_job(
            parallel__stages=stages, parallel__pipelines=2, parallel__micros=2,
            optimizer__clip=0, optimizer__schedule="constant", optimizer__warm_up_steps=0,
            optimizer__learning_rate=0.01, **more)

    def check_as_all_reduce(self, stages, **more):
        self.write_served_job(stages)
        whole = self.launch_model("rows", name="whole")
        self.write_served_job(stages, sync__mode="synchronous", **more)
        served = self.launch_model("rows", name="served")
        losses = self.losses(served)
        for step, loss in self.losses(whole).items():
            self.assertAlmostEqual(losses[step], loss, delta=1e-5 * loss)
        told = subprocess.run(
            [PYTHON, "-c", COMPARE, str(HERE), self.job, whole.folder, served.folder], check=True,
            capture_output=True, text=True, timeout=LIMIT,
            env={**os.environ, "PYTHONPATH": PACKAGE})
        for difference in json.loads(told.stdout):
            self.assertLess(difference, 1e-5)
        return served

    def test_servers_compute_what_an_all_reduce_does(self):
        served = self.check_as_all_reduce(2, sync__architecture="servers")
        losses = self.losses(served)
        # Its last state is that of step 6, from which it goes on.
        resumed = self.launch_model("rows", name="served", flags=("--resume", "--job.steps=9"))
        self.assertEqual({step: loss for step, loss in self.losses(resumed).items() if step < 6},
                         losses)
        self.assertEqual(len(self.losses(resumed)), 9)
        refused = self.launch(HERE / "package_optimizer.py", "nadam", self.job, name="other",
                              expected=1)
        self.assertIn("each process keeps a range of them: leave the optimizer of tenuto.Pipeline "
                      "out", refused.errors)

    @another_case
    def test_replicas_that_do_not_wait(self):
        self.write_served_job(job__steps=40, sync__mode="asynchronous")
        run = self.launch_model("rows", name="free")
        first, *_, last = self.losses(run).values()
        self.assertLess(last, first)
