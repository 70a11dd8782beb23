"""Optimizers and schedules of PyTorch that a script gives to tenuto.Pipeline."""
import json
import os
import subprocess

from harness import LIMIT, another_case
from package_test import HERE, PACKAGE, PYTHON, Launch

SCRIPT = HERE / "package_optimizer.py"
GRIDS = {"one": (1, 1, 4), "two": (2, 2, 2), "four": (4, 1, 4)}


class Optimizer(Launch):
    def python(self, *words):
        ended = subprocess.run([PYTHON, *map(str, words)], capture_output=True, text=True,
                               timeout=LIMIT, env={**os.environ, "PYTHONPATH": PACKAGE})
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout

    def write_grid(self, grid, **more):
        stages, pipelines, micros = GRIDS[grid]
        settings = {"parallel__stages": stages, "parallel__pipelines": pipelines,
                    "parallel__micros": micros, "resilience__numerics": "reproducible", **more}
        self.write_module_job(**settings)

    def train_by(self, optimizer, grid, name=None, flags=(), **more):
        self.write_grid(grid, **more)
        return self.launch(SCRIPT, optimizer, self.job, name=name or grid, flags=flags)

    def state_of(self, run):
        """The parameters of a run's newest checkpoint, and the optimizer's state."""
        code = ("import json, tenuto; "
                "flat = lambda d: {k: v.flatten().tolist() for k, v in d.items()}; "
                f"run = {str(run.folder)!r}; "
                "state = {k: flat(v) for k, v in tenuto.load_optimizer(run).items()}; "
                "print(json.dumps([flat(tenuto.load_checkpoint(run)), state]))")
        return json.loads(self.python("-c", code))

    def check_as_plain(self, optimizer, *grids):
        """All grids have the same bits, and plain PyTorch about the same values."""
        flags = ("--optimizer.clip=0",)
        runs = [self.train_by(optimizer, grid, flags=flags) for grid in grids]
        plain = json.loads(self.python(SCRIPT, optimizer, "-", "plain", "6"))
        losses = self.losses(runs[0])
        for step, loss in enumerate(plain["losses"]):
            self.assertAlmostEqual(losses[step], loss, delta=2e-5 * loss)
        parameters, state = self.state_of(runs[0])
        self.assertEqual(parameters.keys(), plain["parameters"].keys())
        for name, values in plain["parameters"].items():
            for value, other in zip(parameters[name], values):
                self.assertAlmostEqual(value, other, delta=2e-5)
        for run in runs[1:]:
            self.assertEqual(self.losses(run), losses)
            self.assertEqual(self.state_of(run), [parameters, state])
        return runs[0], state

    def test_a_rule_is_what_torch_does(self):
        """Without workers: all rules beside plain torch, through undone steps and new workers."""
        self.assertEqual(self.python(HERE / "package_rules.py"), "15 taken, 12 refused\n")

    def test_radam_with_one_cycle(self):
        run, _ = self.check_as_plain("radam", "two", "one")
        rates = [line["learning_rate"] for line in run.metrics()]
        self.assertEqual(len(set(rates)), 6)
        self.assertTrue(0.04 < max(rates) <= 0.05, rates)

    @another_case
    def test_groups_of_parameters(self):
        run, state = self.check_as_plain("groups", "two")
        self.assertEqual(state["0.weight"]["step"], [6])
        self.assertEqual(len(state["0.weight"]["max_exp_avg_sq"]), 64)
        # A held-out pass needs the parameters alone.
        self.launch(SCRIPT, "groups", self.job, "evaluate", run.folder, name="held-out")
        folder = self.folder / "runs" / "held-out-evaluation"
        logs = "".join(log.read_text() for log in folder.glob("worker-*.log"))
        self.assertRegex(logs, r"evaluated \d")

    @another_case
    def test_an_optimizer_of_the_scripts_own(self):
        losses = self.losses(self.train_by("mine", "two"))
        self.assertEqual(self.losses(self.train_by("mine", "one")), losses)

    def test_updates_that_are_undone_and_clipped(self):
        """Staggered steps are taken before the norm is known, and taken again if it is clipped."""
        flags = ("--optimizer.clip=0.05",)
        barrier = self.train_by("nadam", "four", flags=flags)
        self.assertTrue(all(line["gradient_norm"] > 0.05 for line in barrier.metrics()))
        ahead = self.train_by("nadam", "four", name="ahead", parallel__optimizer="staggered",
                              flags=flags)
        self.assertEqual(self.losses(ahead), self.losses(barrier))

    def test_a_worker_returns_and_the_run_goes_on_elsewhere(self):
        settings = {"job__checkpoint_every": 0}
        self.write_grid("two", job__steps=1000000, **settings)
        run = self.begin(SCRIPT, "nadam", self.job, name="troubled")
        run.wait_for_steps(3)
        self.kill_and_start(run)
        self.end(run)
        steps = len(run.metrics()) + 2
        resumed = self.train_by("nadam", "four", name="troubled", job__steps=steps,
                                flags=("--resume",), **settings)
        whole = self.train_by("nadam", "two", name="whole", job__steps=steps, **settings)
        self.assertEqual(self.losses(resumed), self.losses(whole))
        self.assertEqual(self.state_of(resumed), self.state_of(whole))

    @another_case
    def test_layers_of_a_script_move(self):
        """Each layer is a stage with an optimizer of its own, which begins in the middle."""
        settings = {"job__checkpoint_every": 0, "resilience__numerics": "reproducible"}
        self.write_gpt_job(job__steps=1000000, resilience__layers="adapt", **settings)
        run = self.begin(SCRIPT, "nadam", self.job, "gpt", name="moving")
        run.wait_for_steps(3)
        self.inject(run, "worker=0.1:0.2")
        self.wait_for_event(run, "is proposed: moved layer")
        run.wait_for_steps(len(run.metrics()) + 4)
        self.end(run)
        self.write_gpt_job(job__steps=len(run.metrics()), **settings)
        whole = self.launch(SCRIPT, "nadam", self.job, "gpt", name="whole")
        self.assertEqual(self.losses(run), self.losses(whole))
        self.assertEqual(self.state_of(run), self.state_of(whole))

    @another_case
    def test_a_checkpoint_goes_through_dcp_and_needs_the_same_optimizer(self):
        whole = self.train_by("amsgrad", "two", name="whole", job__checkpoint_every=3)
        code = ("import sys, tenuto; tenuto.to_dcp(sys.argv[1], sys.argv[2]); "
                "tenuto.from_dcp(sys.argv[2], sys.argv[3])")
        self.python("-c", code, whole.folder / "checkpoint-3", self.folder / "dcp",
                    self.folder / "runs" / "again")
        again = self.train_by("amsgrad", "four", name="again", flags=("--resume",))
        losses = self.losses(whole)
        self.assertEqual(self.losses(again), {step: losses[step] for step in (3, 4, 5)})
        self.assertEqual(self.state_of(again), self.state_of(whole))
        self.write_grid("two", job__steps=8)
        other = self.launch(SCRIPT, "nadam", self.job, name="whole", flags=("--resume",),
                            expected=2)
        self.assertIn("was made with optimizer.rule = torch.optim.adam.Adam, the job says "
                      "torch.optim.nadam.NAdam: resume the run with the same value", other.errors)

    def test_refusals(self):
        self.write_grid("one")
        for name, flag, sentence in (
                ("lbfgs", (), "LBFGS failed in a trial on parameters of shapes"),
                ("made", (), "optimizer is Adam: expected a class of torch.optim, or a function"),
                ("schedule", (), "schedule is given without an optimizer: give both, or set"),
                ("sgd", ("--optimizer.learning_rate=0.1",),
                 "optimizer.learning_rate has no effect beside the optimizer that the script")):
            run = self.launch(SCRIPT, name, self.job, flags=flag, expected=1)
            self.assertIn(sentence, run.errors)
        told = self.launch(HERE / "package_model.py", "linear", self.job, expected=2,
                           flags=("--optimizer.kind=torch",))
        self.assertIn('optimizer.kind = "torch" needs a script that gives', told.errors)
