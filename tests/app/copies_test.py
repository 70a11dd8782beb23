"""Workers keep copies of other stages: a run survives the death of all that run a stage."""
import unittest

from harness import SANITIZED, another_case
from join_test import KNOWS, Returning


class Copies(Returning):
    def test_a_single_pipeline_loses_a_worker(self):
        self.write_job(job__steps=60, job__checkpoint_every=15, job__validate_every=20,
                       parallel__pipelines=1, parallel__stages=3, parallel__micros=6)
        undisturbed = self.losses(self.train(name="undisturbed"))
        for victim in (1,) if SANITIZED else range(3):
            run = self.start("--resilience.copies=1", name=f"without-{victim}")
            run.wait_for_steps(10)
            workers = run.workers()
            self.kill(run, victim)
            self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
            self.assert_gone(workers)
            self.assert_whole(run, 60, undisturbed)
            self.assertEqual(len(self.told(run, "death")), 1)
            self.assertEqual(run.checkpoints()[-1], 60)

    def test_both_workers_of_a_stage_die_and_one_rejoins(self):
        self.write_job(job__steps=100000, job__checkpoint_every=0)
        run = self.start("--resilience.copies=1")
        run.wait_for_steps(5)
        workers = run.workers()
        self.kill(run, 1)
        self.kill(run, 3)
        run.wait_for_steps(len(run.metrics()) + 10)
        self.assertEqual(len(self.told(run, "death")), 2)
        self.inject(run, "start=1.1")
        self.wait_for(run, KNOWS)
        run.wait_for_steps(len(run.metrics()) + 5)
        # The surviving workers hold the copies of both stages.
        self.stop(run)
        self.assert_gone(workers)
        self.assert_as_undisturbed(run)

    @another_case
    def test_copies_do_not_change_checkpoints(self):
        self.write_job(job__steps=40, job__checkpoint_every=20)
        undisturbed = self.train(name="undisturbed")
        self.assert_same_bits(self.train("--resilience.copies=1", name="copied"), undisturbed, 40)

    @another_case
    def test_copies_do_not_lengthen_a_step(self):
        """If copies took time, each step would be longer; a busy machine lengthens only some."""
        self.write_job(job__steps=12, job__checkpoint_every=0, device__clock="virtual",
                       device__forward_ms=[20, 10], device__backward_input_ms=[20],
                       device__backward_weight_ms=[20])
        for name, flags in (("plain", []), ("copied", ["--resilience.copies=1"])):
            times = [line["iteration_ms"] for line in self.train(*flags, name=name).metrics()]
            self.assertIn(160.0, times)

    @another_case
    def test_a_real_model(self):
        self.need_torch()
        self.write_job(job__steps=20, job__checkpoint_every=20, parallel__pipelines=1,
                       parallel__micros=4, parallel__micro_rows=2, device__kind="cpu",
                       model__kind="gpt", model__layers=4, model__width=32, model__heads=2,
                       model__sequence=32, model__dropout=0.1, data__paths=[self.write_text()])
        undisturbed = self.losses(self.train(name="undisturbed"))
        run = self.start("--resilience.copies=1")
        run.wait_for_steps(5)
        self.kill(run, 1)
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_whole(run, 20, undisturbed)

    def test_layouts_without_copies_are_refused(self):
        for flags, sentence in (
                (["--parallel.stages=1"], "the plan has only one stage"),
                (["--parallel.optimizer=staggered"], 'parallel.optimizer = "barrier"'),
                (["--parallel.order=interleaved", "--parallel.chunks=2"],
                 "workers that hold one stage each")):
            run = self.train("--resilience.copies=1", *flags, expected=3)
            self.assertIn(sentence, run.errors)


if __name__ == "__main__":
    unittest.main()
