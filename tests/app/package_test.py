"""The Python package: modules of a script, trained by `tenuto launch` with real processes."""
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest

from harness import LIMIT, TENUTO, Case, Run, another_case, long_case

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"
PYTHON = os.environ["TENUTO_TORCH_PYTHON"]
PACKAGE = os.environ["TENUTO_PACKAGE"]
SCRIPT = HERE / "package_model.py"
# Each worker imports torch first, which takes long where all tests do so at once.
LIMITS = (f"--network.connect_seconds={LIMIT - 10}",)


class Launch(Case):
    def write_module_job(self, **more):
        settings = {"job__validate_micros": 0, "job__steps": 6, "device__kind": "cpu",
                    "parallel__micro_rows": 4, **more}
        self.write_job(**settings)
        text = self.job.read_text().splitlines()
        paced = ("forward_ms", "backward_", "message_bytes")
        self.job.write_text("\n".join(line for line in text if not line.startswith(paced)) + "\n")

    def write_gpt_job(self, **settings):
        text = self.folder / "text"
        text.write_text("".join(f"line {number} of some text\n" for number in range(400)))
        self.write_module_job(data__paths=[str(text)], model__width=32, model__heads=4,
                              model__layers=4, model__sequence=16, **settings)

    def begin(self, *words, name="small", flags=(), limits=LIMITS):
        """Begins to train a script: `words` are the script and its arguments."""
        process = subprocess.Popen(
            [TENUTO, "launch", "--python", PYTHON, *flags,
             f"--job.directory={self.folder / 'runs'}", f"--job.name={name}",
             *limits, *map(str, words)],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        run = Run(process, self.folder / "runs" / name)
        self.addCleanup(self.clean_up, run)
        return run

    def launch(self, *words, expected=0, **more):
        """Trains a script to its end, and expects the exit code."""
        run = self.begin(*words, **more)
        code = run.finish()
        self.assertEqual(code, expected, f"stderr: {run.errors}\nstdout: {run.output}\n"
                                         f"logs: {self.logs(run)}")
        return run

    def launch_model(self, model, *words, **more):
        return self.launch(SCRIPT, model, self.job, *words, **more)

    def inject(self, run, wish):
        asked = subprocess.run([TENUTO, "inject", run.folder, wish], capture_output=True, text=True,
                               timeout=LIMIT)
        self.assertEqual(asked.returncode, 0, asked.stderr)

    def wait_for_event(self, run, words):
        run.wait_until(lambda: any(words in event["reason"] for event in run.events()), words)

    def kill_and_start(self, run):
        """Kills worker 2 of 2 x 2, lets the others go on, and has it come back."""
        self.inject(run, "kill=1.0")
        self.wait_for_event(run, "without worker 2")
        run.wait_for_steps(len(run.metrics()) + 2)
        self.inject(run, "start=1.0")
        self.wait_for_event(run, "has the state of version")
        run.wait_for_steps(len(run.metrics()) + 3)

    def end(self, run):
        run.process.terminate()
        self.assertEqual(run.finish(), 143, f"{run.errors}{self.logs(run)}")

    def check_trouble(self, *words):
        """A worker of a script on 2 x 2 dies and returns; then the run is resumed on 4 x 1. The
        losses are those of a run on 2 x 2 without trouble."""
        flags = ("--resilience.numerics=reproducible", "--optimizer.schedule=constant",
                 "--optimizer.warm_up_steps=0", "--job.checkpoint_every=0")
        run = self.begin(*words, name="troubled", flags=(*flags, "--job.steps=1000000"))
        run.wait_for_steps(3)
        self.kill_and_start(run)
        self.end(run)
        steps = len(run.metrics()) + 2
        flags = (*flags, f"--job.steps={steps}")
        resumed = self.launch(*words, name="troubled",
                              flags=("--resume", *flags, "--parallel.stages=4",
                                     "--parallel.pipelines=1", "--parallel.micros=4"))
        losses = self.losses(resumed)
        self.assertEqual(sorted(losses), list(range(steps)))
        self.assertEqual(self.losses(self.launch(*words, name="whole", flags=flags)), losses)

    def with_slow_link(self, script):
        """A copy of an example that takes its settings from a job file with a slow link."""
        code = f"import json, runpy; print(json.dumps(runpy.run_path({str(script)!r})['CONFIG']))"
        asked = subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True,
                               timeout=LIMIT, env={**os.environ, "PYTHONPATH": PACKAGE})
        lines = []
        for section, keys in json.loads(asked.stdout).items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        lines += ["[[fault]]", 'kind = "slow-link"', "link = 0", "latency_ms = 60", "at_step = 20"]
        job = self.folder / "slow.toml"
        job.write_text("\n".join(lines) + "\n")
        copy = self.folder / script.name
        copy.write_text(script.read_text().replace("config=CONFIG", f"config={str(job)!r}"))
        return copy

    def check_slow_link(self, script, *words):
        """A link of a script on 2 x 2 becomes slow, and the run takes another plan. The losses are
        those of a run with healthy links."""
        flags = ("--resilience.numerics=reproducible", "--optimizer.schedule=constant",
                 "--optimizer.warm_up_steps=0", "--job.checkpoint_every=0",
                 "--parallel.micros=6")
        run = self.begin(self.with_slow_link(script), *words, name="slow",
                         flags=(*flags, "--job.steps=1000000"))
        run.wait_for_steps(1)
        run.wait_until(lambda: run.plans_in_force()[0], "another order of ops is in force")
        run.wait_for_steps(max(run.plans_in_force()[0]) + 2)
        self.end(run)
        self.assertTrue(any("is slow since step" in event["reason"] for event in run.events()))
        self.assertGreater(len({line["plan"] for line in run.metrics()}), 1)
        flags = (*flags, f"--job.steps={len(run.metrics())}")
        whole = self.launch(script, *words, name="quiet", flags=flags)
        self.assertEqual(self.losses(whole), self.losses(run))


class Example(Launch):
    OVERRIDES = ("--optimizer.clip=0", "--optimizer.schedule=constant",
                 "--optimizer.warm_up_steps=0", "--job.steps=6")
    GRIDS = {"two": ("--parallel.stages=2", "--parallel.pipelines=2", "--parallel.micros=2"),
             "four": ("--parallel.stages=4", "--parallel.pipelines=1", "--parallel.micros=4"),
             "one": ("--parallel.stages=1", "--parallel.pipelines=1", "--parallel.micros=4"),
             "split": ("--parallel.stages=4", "--parallel.pipelines=1", "--parallel.micros=4",
                       "--parallel.order=zb-h1")}

    def example(self, grid, *words, flags=(), overrides=(), **more):
        return self.launch(EXAMPLES / "bring_your_model.py", *words, name=grid,
                           flags=(*flags, *self.OVERRIDES, *self.GRIDS[grid], *overrides), **more)

    def test_losses_are_those_of_plain_torch(self):
        plain = json.loads(subprocess.run(
            [PYTHON, HERE / "package_plain.py", EXAMPLES, "6"], check=True, capture_output=True,
            text=True, timeout=LIMIT, env={**os.environ, "PYTHONPATH": PACKAGE}).stdout)
        told = self.folder / "told"
        losses = self.losses(self.example("two", "--write", told, flags=("-n", "4")))
        self.assertEqual(sorted(losses), list(range(6)))
        for step, loss in enumerate(plain):
            self.assertAlmostEqual(losses[step], loss, delta=2e-5 * loss)
        self.assertLess(plain[-1], plain[0])
        # Two workers hold the last stage, and each tells of its own micro-batches.
        lines = [json.loads(line) for line in told.read_text().splitlines()]
        for step in range(6):
            own = [line["loss"] for line in lines if line["step"] == step]
            self.assertEqual(len(own), 2)
            self.assertAlmostEqual(sum(own) / 2, losses[step], delta=1e-12)

    @another_case
    @long_case
    def test_it_lives_through_trouble(self):
        self.check_trouble(EXAMPLES / "bring_your_model.py")

    @another_case
    @long_case
    def test_it_adapts_to_a_slow_link(self):
        self.check_slow_link(EXAMPLES / "bring_your_model.py")

    def test_workers_have_time_to_import_torch(self):
        """`launch` gives them 120 s, and the user's limit goes before it."""
        def limit_of(run):
            settings = (run.folder / "config.toml").read_text()
            return re.search(r"connect_seconds = (\S+)", settings)[1]

        self.assertEqual(float(limit_of(self.example("one", limits=()))), 120.0)
        chosen = self.example("one", flags=("--overwrite",))
        self.assertEqual(float(limit_of(chosen)), LIMIT - 10)

    def test_grids_have_the_same_bits(self):
        exact = ("--resilience.numerics=reproducible",)
        one, two, four = (self.losses(self.example(grid, overrides=exact))
                          for grid in ("one", "two", "four"))
        self.assertEqual(one, four)
        self.assertEqual(one, two)
        # Weight gradients of convolutions and products are computed later, by ops of their own.
        split = self.losses(self.example("split", overrides=exact))
        self.assertEqual(one, split)


class Model(Launch):
    def check_gpt(self, **settings):
        """The losses and gradient norms of a GPT in Python are those of the one in C++."""
        self.write_gpt_job(**settings)
        cpp = self.train(name="cpp")
        python = self.launch_model("gpt", name="python")
        self.assertEqual(self.losses(cpp), self.losses(python))
        norms = [[line["gradient_norm"] for line in run.metrics()] for run in (cpp, python)]
        self.assertEqual(*norms)

    def test_a_gpt_in_python_is_that_in_cpp(self):
        self.check_gpt()

    def test_a_gpt_in_bf16_is_that_in_cpp(self):
        self.check_gpt(device__precision="bf16", parallel__stages=4, parallel__pipelines=1,
                       parallel__micros=4)

    def test_a_split_gpt_in_bf16_is_that_in_cpp(self):
        self.check_gpt(device__precision="bf16", parallel__order="zb-h1")

    def test_a_troubled_gpt_is_that_in_cpp(self):
        """A link of the GPT in Python becomes slow for good; then a worker dies, and returns."""
        settings = {"job__checkpoint_every": 0, "optimizer__schedule": "constant",
                    "resilience__numerics": "reproducible", "parallel__micros": 6}
        self.write_gpt_job(job__steps=1000000, **settings)
        with self.job.open("a") as job:
            job.write('[[fault]]\nkind = "slow-link"\nlink = 0\nlatency_ms = 60\nat_step = 20\n')
        run = self.begin(SCRIPT, "gpt", self.job)

        run.wait_for_steps(1)
        run.wait_until(lambda: run.plans_in_force()[0], "another order of ops is in force")
        self.kill_and_start(run)
        self.end(run)
        losses = self.losses(run)
        self.write_gpt_job(job__steps=len(losses), **settings)
        self.assertEqual(self.losses(self.train(name="cpp")), losses)

    def test_a_killed_worker_returns(self):
        settings = {"job__checkpoint_every": 0, "optimizer__schedule": "constant",
                    "resilience__numerics": "reproducible"}
        self.write_module_job(job__steps=1000000, **settings)
        with self.job.open("a") as job:
            job.write('[[fault]]\nkind = "kill"\nworker = "0.1"\nat_step = 3\nat_op = 2\n'
                      '[[fault]]\nkind = "start"\nworker = "0.1"\nat_step = 6\n')
        run = self.begin(SCRIPT, "linear", self.job)

        run.wait_for_steps(1)
        self.wait_for_event(run, "has the state of version")
        run.wait_for_steps(len(run.metrics()) + 5)
        self.wait_for_event(run, "worker 1 is started")
        run.process.send_signal(signal.SIGUSR1)
        self.wait_for_event(run, "asked for a checkpoint")
        run.wait_until(run.checkpoints, "a checkpoint")
        self.end(run)
        losses = self.losses(run)
        self.write_module_job(job__steps=len(losses), **settings)
        self.assertEqual(self.losses(self.launch_model("linear", name="whole")), losses)

    def test_a_resumed_run_goes_on_with_the_same_bits(self):
        self.write_module_job(job__steps=6, job__checkpoint_every=3,
                              optimizer__schedule="constant")
        whole = self.losses(self.launch_model("rows", name="whole"))
        # The script says fit(resume=True), and there is nothing to resume yet.
        self.launch_model("rows", "resume", flags=("--job.steps=3",))
        resumed = self.launch_model("rows", "resume", flags=("--job.steps=6",))
        self.assertEqual(self.losses(resumed), whole)
        self.assertEqual(resumed.checkpoints(), [3, 6])
        for word, flag, sentence in (
                ("resume", "--overwrite", "says fit(resume=True), and --overwrite replaces the"),
                ("begin", "--resume", "says fit(resume=False), and --resume continues the run")):
            refused = self.launch_model("rows", word, flags=(flag,), expected=2)
            self.assertIn(sentence, refused.errors)
            self.assertEqual(resumed.checkpoints(), [3, 6])

    def test_shapes_up_to_the_largest(self):
        settings = {"resilience__numerics": "reproducible", "parallel__pipelines": 1}
        self.write_module_job(parallel__stages=2, **settings)
        cut = self.losses(self.launch_model("lines", "largest", name="cut"))
        self.write_module_job(parallel__stages=1, **settings)
        self.assertEqual(cut, self.losses(self.launch_model("lines", "largest", name="whole")))
        self.assertEqual(len(cut), 6)

    def test_shared_weights_stay_shared(self):
        self.write_module_job(parallel__stages=1, parallel__pipelines=1)
        losses = self.losses(self.launch_model("tied"))
        self.assertEqual(len(losses), 6)

    def test_the_first_and_the_last_stage_share_a_weight(self):
        self.write_module_job()
        two = self.launch_model("ends", name="two")
        self.write_module_job(parallel__stages=1, parallel__pipelines=1, parallel__micros=4)
        one = self.launch_model("ends", name="one")
        self.assertEqual(len(one.metrics()), 6)
        self.assertEqual(len(two.metrics()), 6)
        for mine, other in zip(two.metrics(), one.metrics()):
            for key in ("loss", "gradient_norm"):
                self.assertAlmostEqual(mine[key], other[key], delta=1e-4 * other[key])


class Loop(Launch):
    def test_a_loop_that_is_left_early_leaves_a_state_to_go_on_from(self):
        self.write_module_job(job__steps=1000000, job__checkpoint_every=0)
        run = self.launch(SCRIPT, "rows", self.job, "4")
        steps = len(run.metrics())
        self.assertGreater(steps, 4)
        self.assertRegex("".join(self.logs(run).values()), r"norm [\d.e-]+ rate [\d.e-]+\n")
        self.assertEqual(run.checkpoints(), [steps])
        self.assertTrue(any(f"asked to end after step {steps - 1}" in event["reason"]
                            for event in run.events()))
        resumed = self.launch_model("rows", flags=("--resume", f"--job.steps={steps + 2}"))
        self.assertEqual(sorted(self.losses(resumed)), list(range(steps + 2)))


class Checkpoints(Launch):
    """What a script does with the checkpoints of a run, without workers."""

    def script(self, *words):
        ended = subprocess.run([PYTHON, HERE / "package_checkpoint.py", *map(str, words)],
                               capture_output=True, text=True, timeout=LIMIT,
                               env={**os.environ, "PYTHONPATH": PACKAGE})
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)

    def test_to_dcp_and_back_and_on_another_layout(self):
        exact = {"optimizer__schedule": "constant", "resilience__numerics": "reproducible"}
        self.write_module_job(job__steps=6, job__checkpoint_every=3, **exact)
        whole = self.launch_model("rows", name="whole")
        told = self.script("convert", whole.folder / "checkpoint-3", self.folder / "dcp",
                           self.folder / "runs" / "again")
        self.assertEqual(told["names"], ["0.bias", "0.weight", "2.bias", "2.weight", "3.bias",
                                         "3.weight"])
        for name in told["names"]:
            for kind in ("exp_avg", "exp_avg_sq", "step"):
                self.assertIn(f"optimizer.state.{name}.{kind}", told["keys"])
            self.assertIn(f"model.{name}", told["keys"])
        again = self.launch_model(
            "rows", name="again", flags=("--resume", "--job.steps=6", "--parallel.stages=1",
                                         "--parallel.pipelines=1", "--parallel.micros=4"))
        losses, expected = self.losses(again), self.losses(whole)
        self.assertEqual([losses[step] for step in (3, 4, 5)],
                         [expected[step] for step in (3, 4, 5)])
        # The loss over a data set is that of plain torch.
        told = self.script("evaluate", self.job, whole.folder)
        self.assertAlmostEqual(told["evaluated"], told["plain"], delta=1e-6 * told["plain"])
        self.assertIn("is of another model", told["refused"])
        self.assertIn("is damaged: expected", told["damaged"])
        self.assertEqual(told["saved"], {"step": 6, "files": ["model.pt"]})


class Refusals(Launch):
    """Each is one sentence that says what is wrong."""

    def refused(self, model, *sentences, expected=1, **more):
        self.write_module_job(**more)
        run = self.launch_model(model, expected=expected)
        for sentence in sentences:
            self.assertIn(sentence, run.errors + "".join(self.logs(run).values()))
        return run

    def test_an_exception_ends_the_run(self):
        run = self.refused("fails", "KeyError: 'no such feature'", "Traceback (most recent call")
        self.assertRegex(run.errors, r"KeyError: 'no such feature' \(.*package_model.py:\d+, in ")
        self.assertIn("Traceback (most recent call", run.errors)
        self.assertRegex(run.errors, r"worker [0-3]\b")

    def test_scripts_that_differ(self):
        self.refused("differs", "two scripts that differ", expected=2)

    def test_a_script_that_is_changed_after_the_start(self):
        """It makes the same model, and might compute another loss."""
        script = self.folder / "changing.py"
        script.write_text(
            "import atexit, os, pathlib, sys, tenuto\n"
            f"sys.path.insert(0, {str(HERE)!r})\n"
            "import package_model\n"
            "def change():\n"
            "    with pathlib.Path(__file__).open('a') as script:\n"
            "        script.write('# a comment\\n' + sys.argv[2] + '\\n')\n"
            "if 'TENUTO_DESCRIBE' in os.environ:\n"
            "    atexit.register(change)\n"
            "model, loss, data = package_model.MODELS['linear']\n"
            "tenuto.Pipeline(model, loss=loss, config=sys.argv[1]).fit(data)\n")
        self.write_module_job(parallel__stages=1, parallel__pipelines=1)
        self.launch(script, self.job, "# another", name="comments")
        run = self.launch(script, self.job, "OTHER = 1", name="code", expected=2)
        self.assertIn("the code of this worker's script",
                      run.errors + "".join(self.logs(run).values()))

    def test_a_buffer_that_a_forward_changes(self):
        self.refused("buffers",
                     "layer 1 (BatchNorm1d): BatchNorm1d changes its buffer running_mean")

    def test_a_loss_that_is_no_number(self):
        self.refused("loss", "the loss has shape [4, 1] and type torch.float32: expected one")

    def test_shapes_that_differ_unannounced(self):
        run = self.refused("lines", "fit(largest=...)")
        self.assertRegex(run.errors, r"worker 0 .*layer \d \(\w+\) gives float32\[4, \d, 8\] to "
                                     r"the next stage, expected as for the first micro-batch ")

    def test_stages_and_losses(self):
        """Without a run: what a stage gives to the next one, what a loss and a model are."""
        ended = subprocess.run([PYTHON, HERE / "package_refusals.py"], capture_output=True,
                               text=True, timeout=LIMIT, env={**os.environ, "PYTHONPATH": PACKAGE})
        self.assertEqual(ended.returncode, 0, ended.stderr)
        found = json.loads(ended.stdout)
        alike = "a layer must give as many tensors, of the same types and dimensions, each time"
        first = "to the next stage, expected as for the first micro-batch float32[4, 8]: "
        self.assertEqual(found, {
            "the same": "", "the last stage": "", "smaller than the largest": "",
            "more tensors": "ValueError: layer 1 (Other) gives float32[4, 8] and float32[4, 8] "
                            f"{first}{alike}",
            "no tensor": f"ValueError: layer 1 (Other) gives nothing {first}{alike}",
            "another type": f"ValueError: layer 1 (Other) gives bfloat16[4, 8] {first}{alike}",
            "another shape": f"ValueError: layer 1 (Other) gives float32[3, 8] {first}"
                             "make all micro-batches alike, or give fit(largest=...) the largest "
                             "shapes",
            "larger than the largest": "ValueError: layer 1 (Other) gives float32[5, 8] to the "
                                       "next stage, expected at most float32[4, 8]: give "
                                       "fit(largest=...) the largest shapes",
            "another dimension": "ValueError: layer 1 (Other) gives float32[4, 8, 1] to the next "
                                 f"stage, expected at most float32[4, 8]: {alike}",
            "no tensors": "TypeError: layer 1 (Other) gives dict: expected a tensor or a tuple of "
                          "tensors",
            "a number": "TypeError: the loss is float: expected a tensor with one number",
            "a pair": "TypeError: the loss is tuple: expected a tensor with one number",
            "a vector": "TypeError: the loss has shape [4] and type torch.float32: expected one "
                        "floating-point number, such as the mean over the rows of the micro-batch",
            "an integer": "TypeError: the loss has shape [] and type torch.int64: expected one "
                          "floating-point number, such as the mean over the rows of the "
                          "micro-batch",
            "one module": "TypeError: the model is Linear: expected an nn.Sequential or a list of "
                          "modules, or a function that returns one of them; the model can be cut "
                          "between any two of its modules",
            "no module": "TypeError: the model is an empty list: expected an nn.Sequential or a "
                         "list of modules, or a function that returns one of them; the model can "
                         "be cut between any two of its modules"})

    def test_a_shared_weight_that_the_plan_cuts(self):
        self.refused("tied", "layers 0 and 2 share 0.weight, and this plan cuts the model",
                     expected=2)

    def test_another_number_of_workers(self):
        self.write_module_job()
        run = self.launch_model("linear", flags=("-n", "3"), expected=2)
        self.assertIn("has 4 workers (parallel.stages x parallel.pipelines): give -n 4", run.errors)

    def test_a_module_job_without_its_script(self):
        self.write_module_job(model__kind="module")
        run = self.start()
        self.assertEqual(run.finish(), 2)
        self.assertIn("tenuto launch SCRIPT.py", run.errors)

    def test_fit_without_a_launcher(self):
        self.write_module_job()
        ended = subprocess.run([PYTHON, SCRIPT, "linear", self.job], capture_output=True, text=True,
                               timeout=LIMIT, env={**os.environ, "PYTHONPATH": PACKAGE})
        self.assertEqual(ended.returncode, 1)
        self.assertIn("tenuto launch", ended.stderr)


if __name__ == "__main__":
    unittest.main()
