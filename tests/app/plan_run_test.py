"""Runs of plan files whose stages have unequal numbers of workers."""
import json
import re
import subprocess
import unittest

from harness import LIMIT, TENUTO, another_case, long_case
from join_test import KNOWS, Returning


class PlanRuns(Returning):
    def write_plan(self, holders, layers=None, micros=16, *more):
        """A plan with so many holders and layers of each stage; its file."""
        path = self.folder / "plan.json"
        words = [TENUTO, "schedule", "convert", "--to", "json", "--out", str(path),
                 "--holders", ",".join(map(str, holders)), "--micros", str(micros), *more]
        if layers:
            words += ["--layers", ",".join(map(str, layers))]
        made = subprocess.run(words, text=True, capture_output=True, timeout=LIMIT)
        self.assertEqual(made.returncode, 0, made.stderr)
        return path

    def write_plan_job(self, path, **more):
        """A job of that plan: no stages, pipelines or micros of its own."""
        self.write_job(parallel__plan=str(path), **more)
        lines = self.job.read_text().splitlines()
        own = ("stages", "pipelines", "micros")
        self.job.write_text("\n".join(line for line in lines if line.split(" ")[0] not in own))
        self.job.write_text(self.job.read_text() + "\n")


class Unequal(PlanRuns):
    def test_unequal_stages_compute_what_equal_ones_do(self):
        for holders in ((5, 3), (1, 1, 2, 2, 2)):
            settings = {"resilience__numerics": "reproducible", "job__steps": 10}
            self.write_plan_job(self.write_plan(holders), **settings)
            run = self.train(name=f"unequal-{len(holders)}")
            self.write_job(parallel__stages=len(holders), parallel__pipelines=1,
                           parallel__micros=16, **settings)
            equal = self.train(name=f"equal-{len(holders)}")
            self.assertEqual(self.losses(run), self.losses(equal))
            self.assertIn("-".join(map(str, holders)), run.output)

    def test_a_plan_with_four_stages_for_each_worker_computes_the_same(self):
        chain, cluster = self.folder / "chain", self.folder / "cluster.json"
        chain.write_text("".join(f"1 2 1000 1000000 layer{n}\n" for n in range(8)))
        # The devices of a node are 0 and 2, and 1 and 3.
        rates = [[25 if (row - column) % 2 == 0 else 0.1 for column in range(4)]
                 for row in range(4)]
        cluster.write_text(json.dumps({"devices": 4, "bandwidth_gbps": rates}))
        path = self.folder / "plan.json"
        made = subprocess.run([TENUTO, "plan", "--chain", chain, "--cluster", cluster, "--micros",
                               "4", "--plan", path], text=True, capture_output=True, timeout=LIMIT)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("8 stages on 2-2 workers, 4 on each", made.stdout)
        settings = {"resilience__numerics": "reproducible", "job__steps": 6}
        self.write_plan_job(path, **settings)
        run = self.train(name="planned")
        self.write_job(parallel__stages=8, parallel__pipelines=1, parallel__micros=4, **settings)
        self.assertEqual(self.losses(run), self.losses(self.train(name="plain")))

    def test_a_worker_of_each_stage_dies_and_returns(self):
        self.write_plan_job(self.write_plan((3, 2), micros=6), job__steps=100000,
                            job__checkpoint_every=0, resilience__numerics="reproducible")
        run = self.start()
        run.wait_for_steps(2)
        for count, (worker, name) in enumerate(((1, "1.0"), (4, "1.1")), 1):
            self.inject(run, f"kill={name}")
            run.wait_until(lambda: len(self.told(run, "death")) == count, "the death")
            run.wait_for_steps(len(run.metrics()) + 3)
            self.assertNotIn(worker, self.holders(run))
            self.inject(run, f"start={name}")
            self.wait_for(run, KNOWS, count)
            run.wait_for_steps(len(run.metrics()) + 3)
        self.stop(run)
        self.assertEqual(self.holders(run), [0, 1, 2, 3, 4])
        self.assertIn("worker 4 (stage 1 of pipeline 1) returns", self.told(run, "join"))
        self.assert_as_undisturbed(run)

    @another_case
    def test_faults_and_slow_links_by_place(self):
        self.write_plan_job(self.write_plan((3, 2), micros=6), job__steps=12,
                            resilience__numerics="reproducible")
        undisturbed = self.train(name="undisturbed")
        self.add_fault(kind="slow-worker", worker="2.0", speed=0.5)
        self.add_fault(kind="slow-link", link=0, latency_ms=3.0, at_step=4)
        self.add_fault(kind="kill", worker="1.1", at_step=6, at_op=3)
        run = self.train(name="disturbed")
        self.assertEqual(self.losses(run), self.losses(undisturbed))
        self.assertRegex(self.told(run, "death")[0], r"worker 4 \(stage 1 of pipeline 1\) ")

    def test_a_small_model_of_two_holders_and_one(self):
        """The losses and the weights are those of one process, bit for bit."""
        self.compare_with_one_process((2, 1), (3, 1), micros=4, model__layers=2)

    @long_case
    def test_a_model_on_five_and_three_workers(self):
        self.compare_with_one_process((5, 3), (5, 3), micros=16, model__layers=6, lost=(2, 6))

    @long_case
    def test_a_model_on_five_stages(self):
        self.compare_with_one_process((1, 1, 2, 2, 2), (1, 1, 2, 2, 2), micros=12,
                                      model__layers=6, lost=(2, 5))

    def compare_with_one_process(self, holders, layers, micros, lost=(), **model):
        self.need_torch()
        settings = {"data__paths": [self.write_text()], "device__kind": "cpu", "job__steps": 10,
                    "model__width": 16, "model__heads": 2, "model__sequence": 16,
                    "model__dropout": 0.1, "resilience__numerics": "reproducible", **model}
        self.write_job(**settings, parallel__stages=1, parallel__pipelines=1,
                       parallel__micros=micros)
        alone = self.train(name="alone")
        self.write_plan_job(self.write_plan(holders, layers, micros), **settings)
        run = self.train(name="planned")
        self.assertEqual(self.losses(run), self.losses(alone))
        for step, worker in enumerate(lost, 3):
            self.add_fault(kind="kill", worker=str(worker), at_step=step, at_op=4)
            self.add_fault(kind="start", worker=str(worker), at_step=step + 2)
        if lost:
            hurt = self.train(name="hurt")
            self.assertEqual(len(self.told(hurt, "death")), len(lost))
            self.assertEqual(self.losses(hurt), self.losses(alone))


class Recomputing(PlanRuns):
    def test_the_model_computes_the_same(self):
        self.need_torch()
        self.write_job(data__paths=[self.write_text()], device__kind="cpu", job__steps=10,
                       model__layers=2, model__width=16, model__heads=2, model__sequence=16,
                       model__dropout=0.1, resilience__numerics="reproducible")
        keeping = self.train(name="keeping")
        again = self.train("--parallel.recompute=all", name="again")
        self.assertEqual(self.losses(again), self.losses(keeping))
        # A worker dies within a step, and joins again.
        self.add_fault(kind="kill", worker="1.1", at_step=3, at_op=4)
        self.add_fault(kind="start", worker="1.1", at_step=5)
        hurt = self.train("--parallel.recompute=all", name="hurt")
        self.assertEqual(len(self.told(hurt, "death")), 1)
        self.assertEqual(self.losses(hurt), self.losses(keeping))

    def test_a_plan_file_says_which_stages(self):
        path = self.write_plan((2, 1), micros=6)
        plan = json.loads(path.read_text())
        plan["stages"][1]["recompute"] = True
        path.write_text(json.dumps(plan))
        self.write_plan_job(path, job__steps=12, resilience__numerics="reproducible")
        whole = self.train(name="whole")
        self.add_fault(kind="kill", worker="1.0", at_step=5, at_op=3)
        self.add_fault(kind="start", worker="1.0", at_step=8)
        hurt = self.train(name="hurt")
        self.assertEqual(self.losses(hurt), self.losses(whole))
        self.assertIn('"recompute": true', (hurt.folder / "plan-1.json").read_text())


class Refused(PlanRuns):
    def refusal(self, *arguments):
        found = subprocess.run([TENUTO, "train", str(self.job), "--print-config", *arguments],
                               text=True, capture_output=True, timeout=LIMIT)
        self.assertEqual(found.returncode, 2, found.stdout)
        return re.sub(r"/\S*/", "", found.stderr)

    def test_settings_that_the_plan_decides(self):
        self.write_plan_job(self.write_plan((3, 2), micros=6))
        shown = subprocess.run([TENUTO, "train", str(self.job), "--print-config"], text=True,
                               capture_output=True, timeout=LIMIT).stdout
        self.assertRegex(shown, r'holders = \["0 1 2", "3 4"\] +# plan ')
        self.assertRegex(shown, r"micros = 6 +# plan ")
        self.assertEqual(
            self.refusal("--parallel.micros=4"),
            "tenuto: --parallel.micros = 4: the plan plan.json has 6: leave the key out or make "
            "them equal\n")
        self.assertIn("already decides this", self.refusal("--parallel.recompute=all"))
        self.assertEqual(
            self.refusal("--parallel.order=gpipe"),
            'tenuto: --parallel.order: parallel.plan = "plan.json" already decides this: leave one '
            "out\n")
        self.assertIn('"3.1" is no worker of this job: expected "PIPELINE.STAGE" of 2 stages whose '
                      "holders the plan lists, or 0 to 4",
                      self.refusal_of_fault(kind="kill", worker="3.1", at_step=1))

    def test_a_plan_by_flag_replaces_what_the_job_file_says(self):
        path = self.write_plan((3, 2), micros=6)
        self.write_plan_job(path)
        job, lines = re.subn(r"(?m)^plan = .*$", 'stages = 4\nmicros = 9\norder = "gpipe"',
                             self.job.read_text())
        self.assertEqual(lines, 1)
        self.job.write_text(job)
        shown = subprocess.run([TENUTO, "train", str(self.job), f"--parallel.plan={path}",
                                "--print-config"], text=True, capture_output=True, timeout=LIMIT)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        for line in ("stages = 2", "micros = 6", 'order = "1f1b"'):
            self.assertRegex(shown.stdout, rf"{line} +# plan ")

    def test_the_printed_configuration_is_a_job(self):
        for holders in ((3, 2), (2, 2)):
            self.write_plan_job(self.write_plan(holders, micros=6))
            words = [TENUTO, "train", str(self.job), "--print-config"]
            shown = subprocess.run(words, text=True, capture_output=True, timeout=LIMIT)
            self.job.write_text(shown.stdout)
            again = subprocess.run(words, text=True, capture_output=True, timeout=LIMIT)
            self.assertEqual(again.returncode, 0, again.stderr)
            for line in ("stages = 2", "micros = 6", f"plan = {json.dumps(str(self.folder))[:-1]}"):
                self.assertIn(line, again.stdout)

    def refusal_of_fault(self, **fault):
        before = self.job.read_text()
        self.add_fault(**fault)
        sentence = self.refusal()
        self.job.write_text(before)
        return sentence

    def test_files_that_are_no_plan(self):
        for text, sentence in (("{}", "missing"), ("", "plan.json"), ("stages 1", "plan.json")):
            path = self.folder / "plan.json"
            path.write_text(text)
            self.write_plan_job(path)
            self.assertIn(sentence, self.refusal())
        self.write_plan_job(self.folder / "none.json")
        self.assertIn("none.json", self.refusal())
        self.write_plan_job("/dev/zero")
        self.assertIn("/dev/zero", subprocess.run(
            [TENUTO, "train", str(self.job)], text=True, capture_output=True,
            timeout=LIMIT).stderr)

    def test_a_plan_of_another_model(self):
        self.need_torch()
        self.write_plan_job(self.write_plan((2, 1), (3, 2), 4), device__kind="cpu",
                            data__paths=[self.write_text()], model__layers=2)
        found = self.train(expected=3)
        self.assertIn("is the plan of a model with 5 layers, but the job's model has 4 (embedding, "
                      "blocks and head): make a plan for this model", found.errors)


if __name__ == "__main__":
    unittest.main()
