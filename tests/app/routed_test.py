"""Runs with workers that are absent from the start, and with slow ones."""
import json
import statistics
import subprocess
import unittest

from harness import Case, TENUTO


class Absent(Case):
    def write_faulty_job(self, *faults, **more):
        self.write_job(job__steps=30, job__checkpoint_every=10, job__validate_every=10,
                       job__validate_micros=3, parallel__stages=4, parallel__pipelines=2,
                       parallel__micros=6, parallel__order="zb-h1", parallel__dispatch="ready",
                       optimizer__kind="sgd", device__forward_ms=[5.0],
                       device__backward_input_ms=[5.0], device__backward_weight_ms=[5.0], **more)
        with self.job.open("a") as file:
            for fault in faults:
                file.write("[[fault]]\n")
                for key, value in fault.items():
                    file.write(f"{key} = {json.dumps(value)}\n")

    def priced(self):
        """The time of a step by `tenuto simulate`, up to the last weight gradient."""
        found = subprocess.run([TENUTO, "simulate", str(self.job), "--update", "no", "--json"],
                               text=True, capture_output=True, timeout=60)
        self.assertEqual(found.returncode, 0, found.stderr)
        return json.loads(found.stdout)["makespan_ms"]

    def expect_as_priced(self, run):
        times = [line["iteration_ms"] for line in run.metrics()][5:]
        priced = self.priced()
        self.assertAlmostEqual(statistics.median(times) / priced, 1, delta=0.02)
        return priced

    def test_one_dead_worker(self):
        self.write_faulty_job()
        whole = self.train(name="whole")
        quiet = self.expect_as_priced(whole)
        self.write_faulty_job({"kind": "dead-worker", "worker": "0.1"})
        run = self.train(name="without")
        self.assertEqual(self.losses(run), self.losses(whole))
        self.assertFalse((run.folder / "worker-1.log").exists())
        self.assertTrue((run.folder / "worker-7.log").exists())
        hit = self.expect_as_priced(run)
        # 12 micro-batches at one worker instead of 6: 90 ms more, of which the bubble takes some.
        self.assertGreater(hit, quiet + 40)
        self.assertEqual(run.checkpoints()[-1], 30)
        status = [event["reason"] for event in run.events() if event["event"] == "start"]
        self.assertIn("all 7 workers are connected", status[0])
        self.assertIn("worker 0.1 is not there", run.output)

    def test_a_dead_and_a_slow_worker(self):
        self.write_faulty_job()
        whole = self.train(name="whole")
        self.write_faulty_job({"kind": "dead-worker", "worker": "6"},
                              {"kind": "slow-worker", "worker": "0.3", "speed": 0.5})
        run = self.train(name="mixture")
        self.assertEqual(self.losses(run), self.losses(whole))
        self.expect_as_priced(run)

    def test_resumed_without_another_one(self):
        self.write_faulty_job()
        whole = self.train(name="whole")
        self.write_faulty_job({"kind": "dead-worker", "worker": "1.0"})
        self.train("--job.steps=20", name="resumed")
        self.write_faulty_job({"kind": "dead-worker", "worker": "0.0"},
                              {"kind": "dead-worker", "worker": "1.2"})
        run = self.train("--resume", name="resumed")
        self.assertEqual(self.losses(run), self.losses(whole))

    def test_a_slow_worker_comes_and_goes(self):
        self.write_faulty_job({"kind": "slow-worker", "worker": "1.1", "speed": 0.5,
                               "at_step": 10, "until_step": 20})
        run = self.train()
        times = [line["iteration_ms"] for line in run.metrics()]
        quiet, slow = statistics.median(times[3:10]), statistics.median(times[12:20])
        self.assertGreater(slow, 1.5 * quiet)
        self.assertLess(statistics.median(times[22:]), 1.1 * quiet)
        self.assertIn("rehearsed fault: from step 10 on worker 1.1 at 0.5 of its speed", run.output)

    def test_refusals(self):
        for fault, sentence in (
                ({"kind": "dead-worker"}, "worker is missing"),
                ({"kind": "dead-worker", "worker": "0.4"}, "is no worker of this job"),
                ({"kind": "dead-worker", "worker": "8"}, "is no worker of this job"),
                ({"kind": "dead-worker", "worker": "0.1", "at_step": 3},
                 "from the start of a run (0) only"),
                ({"kind": "dead-worker", "worker": "0.1", "speed": 0.5},
                 'belongs to kind = "slow-worker"'),
                ({"kind": "slow-worker", "worker": "0.1"}, "speed is missing"),
                ({"kind": "slow-worker", "worker": "0.1", "speed": 1.5}, "expected a number in (0, 1)"),
                ({"kind": "slow-worker", "worker": "0.1", "speed": 0.5, "link": 1},
                 'belongs to kind = "slow-link"')):
            self.write_faulty_job(fault)
            run = self.start()
            self.assertEqual(run.finish(), 2, fault)
            self.assertIn(sentence, run.errors)
        self.write_faulty_job({"kind": "dead-worker", "worker": "0.1"},
                              {"kind": "dead-worker", "worker": "1.1"})
        run = self.start()
        self.assertEqual(run.finish(), 3)
        self.assertIn("no worker that lives holds stage 1", run.errors)


if __name__ == "__main__":
    unittest.main()
