"""Runs with workers that are absent from the start, and with slow ones."""
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import unittest

from harness import Case, LIMIT, SANITIZED, TENUTO, another_case


class Absent(Case):
    def write_faulty_job(self, *faults, **more):
        settings = {"job__steps": 30, "job__checkpoint_every": 10, "job__validate_every": 10,
                    "job__validate_micros": 3, "parallel__stages": 4, "parallel__pipelines": 2,
                    "parallel__micros": 6, "parallel__order": "zb-h1",
                    "parallel__dispatch": "ready", "optimizer__kind": "sgd",
                    "device__forward_ms": [5.0], "device__backward_input_ms": [5.0],
                    "device__backward_weight_ms": [5.0], "network__latency_ms": 0.5}
        self.write_job(**{**settings, **more})
        with self.job.open("a") as file:
            for fault in faults:
                file.write("[[fault]]\n")
                for key, value in fault.items():
                    file.write(f"{key} = {json.dumps(value)}\n")

    def priced(self, job):
        """The time of a step by `tenuto simulate`, up to the last weight gradient."""
        found = subprocess.run([TENUTO, "simulate", str(job), "--update", "no", "--json"],
                               text=True, capture_output=True, timeout=LIMIT)
        self.assertEqual(found.returncode, 0, found.stderr)
        return json.loads(found.stdout)["makespan_ms"]

    def expect_as_priced(self, run):
        """Trains the same job with listed dispatch: its steps take the priced time.

        With listed dispatch the virtual clock follows from the plan alone. With ready dispatch a
        worker chooses its next op by what has arrived, and on a busy machine messages arrive later
        than on the virtual clock; `tenuto bench live-mixtures` measures that. A worker that is
        woken very late still lengthens a step, so two steps within 1 % of the price are enough. If
        there are fewer, the run is repeated, at most twice. Sanitizers make each step late:
        under them only the losses are compared.
        """
        for attempt in range(3):
            listed = self.train("--parallel.dispatch=listed",
                                name=f"{run.folder.name}-listed-{attempt}")
            self.assertEqual(self.losses(listed), self.losses(run))
            priced = self.priced(listed.folder / "config.toml")
            times = [line["iteration_ms"] for line in listed.metrics()][5:]
            right = sum(abs(time / priced - 1) <= 0.01 for time in times)
            print(f"{right} of {len(times)} steps took the priced {priced:.2f} ms")
            if SANITIZED or right > 1:
                return priced
        self.fail(f"{priced} ms were priced: {times}")

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
        # One worker runs 12 micro-batches instead of 6: 90 ms more, some of which fill the bubble.
        self.assertGreater(hit, quiet + 40)
        self.assertEqual(run.checkpoints()[-1], 30)
        status = [event["reason"] for event in run.events() if event["event"] == "start"]
        self.assertIn("all 7 workers are connected", status[0])
        self.assertIn("worker 0.1 is absent", run.output)

    @another_case
    def test_a_dead_and_a_slow_worker(self):
        self.write_faulty_job()
        whole = self.train(name="whole")
        self.write_faulty_job({"kind": "dead-worker", "worker": "6"},
                              {"kind": "slow-worker", "worker": "0.3", "speed": 0.5})
        run = self.train(name="mixture")
        self.assertEqual(self.losses(run), self.losses(whole))
        self.expect_as_priced(run)

    @another_case
    def test_pairs_of_troubles(self):
        self.expect_mixtures_as_priced((DEAD, PAIR), (HALF, PAIR), (DEAD, HALF))

    @another_case
    def test_two_dead_workers_and_a_slow_one(self):
        self.expect_mixtures_as_priced((DEAD, {"kind": "dead-worker", "worker": "1.3"}), (HALF,))

    def expect_mixtures_as_priced(self, *mixtures):
        for troubles in mixtures:
            self.write_faulty_job(*troubles, resilience__slow_links="off", job__steps=12)
            self.expect_as_priced(self.train(name="pair"))
            self.job.unlink()
            shutil.rmtree(self.folder / "runs")

    def test_a_worker_moves_to_a_stage_that_lost_all(self):
        self.lose_a_stage("auto")

    @another_case
    def test_the_same_under_a_named_order(self):
        self.lose_a_stage("zb-h1")

    def lose_a_stage(self, order):
        """A worker that moves to another stage gets that stage's op times and its weights."""
        times = {"device__forward_ms": [4.0, 6.0, 4.0, 4.0], "parallel__order": "auto"}
        dead = [{"kind": "dead-worker", "worker": worker} for worker in ("0.1", "1.1")]
        self.write_faulty_job(**times)
        whole = self.train(name="whole")
        self.write_faulty_job(*dead, **{**times, "parallel__order": order})
        run = self.train(name=order)
        self.assertEqual(self.losses(run), self.losses(whole))
        self.expect_as_priced(run)
        moved = [event["reason"] for event in run.events() if event["event"] == "plan"]
        self.assertEqual(len(moved), 1)
        self.assertRegex(moved[0], "worker [0-7] holds stage 1 instead of [023]")
        self.assertIn(moved[0], run.output)
        if order != "auto":
            return
        self.train("--job.steps=20", name="resumed")
        self.write_faulty_job(dead[0], {"kind": "dead-worker", "worker": "1.3"}, **times)
        run = self.train("--resume", name="resumed")
        self.assertEqual(self.losses(run), self.losses(whole))

    @another_case
    def test_resumed_with_other_absent_workers(self):
        self.write_faulty_job()
        whole = self.train(name="whole")
        self.write_faulty_job({"kind": "dead-worker", "worker": "1.0"})
        self.train("--job.steps=20", name="resumed")
        self.write_faulty_job({"kind": "dead-worker", "worker": "0.0"},
                              {"kind": "dead-worker", "worker": "1.2"})
        run = self.train("--resume", name="resumed")
        self.assertEqual(self.losses(run), self.losses(whole))

    @another_case
    def test_a_slow_worker_comes_and_goes(self):
        self.write_faulty_job({"kind": "slow-worker", "worker": "1.1", "speed": 0.5,
                               "at_step": 10, "until_step": 20})
        run = self.train()
        times = [line["iteration_ms"] for line in run.metrics()]
        # A busy machine makes some steps longer: compare the shortest with the median, so that a
        # late step cannot fail the test.
        self.assertGreater(statistics.median(times[12:20]), 1.3 * min(times[3:10]))
        self.assertLess(min(times[22:]), 1.1 * statistics.median(times[3:10]))
        self.assertIn("injected fault: from step 10 on worker 1.1 at 0.5 of its speed", run.output)

    @another_case
    def test_a_slow_worker_changes_the_plan_until_it_heals(self):
        self.write_faulty_job(job__steps=5000, resilience__slow_workers="adapt",
                              job__checkpoint_every=0, job__validate_every=0,
                              job__validate_micros=0)
        run = self.start(name="slowed")
        run.wait_for_steps(15)
        begin = self.inject(run, "worker=1.1:0.5")
        run.wait_until(lambda: run.plans_in_force()[0], "a plan for the slow worker")
        run.wait_for_steps(run.plans_in_force()[0][0] + 12)
        end = self.inject(run, "worker=1.1:1")

        def returned():
            steps, reasons = run.plans_in_force()
            healthy = "all workers and links are healthy again" in " ".join(reasons)
            return (steps[-1] >= end and healthy and
                    len(run.metrics()) > steps[-1] + 6)

        run.wait_until(returned, "the first plan returns")
        run.process.terminate()
        self.assertEqual(run.finish(), 143, run.errors)
        steps, reasons = run.plans_in_force()
        found = [event["step"] for event in run.events() if event["event"] == "detection"]
        self.assertIn(found[0], range(begin, begin + 3 + 2))
        times = [line["iteration_ms"] for line in run.metrics()]
        slow = statistics.median(times[begin:steps[0]])
        self.assertLess(min(times[steps[0] + 1:end]), 0.9 * slow, reasons)
        self.assertLess(min(times[-5:]), 1.05 * statistics.median(times[5:begin]))
        quiet = self.start(name="quiet")
        quiet.wait_for_steps(len(times))
        quiet.process.terminate()
        self.assertEqual(quiet.finish(), 143, quiet.errors)
        expected = self.losses(quiet)
        self.assertEqual(self.losses(run), {step: expected[step] for step in range(len(times))})

    def test_a_slow_worker_is_injected_and_removed(self):
        self.write_faulty_job({"kind": "dead-worker", "worker": "0.1"}, job__steps=5000)
        run = self.start("--job.checkpoint_every=0")
        run.wait_for_steps(6)
        begin = self.inject(run, "worker=1.1:0.5")
        run.wait_for_steps(begin + 6)
        end = self.inject(run, "worker=5:1")
        run.wait_for_steps(end + 6)
        for wrong, sentence in (("worker=0.1:0.5", "worker 1 has not connected yet"),
                                ("worker=2.0:0.5", "there is no worker 2.0"),
                                ("worker=1.1:2", "is not a slow worker"),
                                ("worker=1.1", "is not a slow worker")):
            refused = self.ask(run, wrong)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(sentence, refused.stderr)
        run.process.terminate()
        self.assertEqual(run.finish(), 143)
        times = [line["iteration_ms"] for line in run.metrics()]
        self.assertGreater(statistics.median(times[begin + 1:end]), 1.7 * min(times[3:begin]))
        self.assertLess(min(times[end + 2:]), 1.1 * statistics.median(times[3:begin]))

    def ask(self, run, wish):
        return subprocess.run([TENUTO, "inject", str(run.folder), wish], text=True,
                              capture_output=True, timeout=LIMIT)

    def inject(self, run, wish):
        answer = self.ask(run, wish)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return int(re.fullmatch(r".*: from step (\d+) on\n", answer.stdout)[1])

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
                ({"kind": "slow-worker", "worker": "0.1", "speed": 1.5},
                 "expects a number in (0, 1)"),
                ({"kind": "slow-worker", "worker": "0.1", "speed": 0.5, "link": 1},
                 'belongs to kind = "slow-link"')):
            self.write_faulty_job(fault)
            run = self.start()
            self.assertEqual(run.finish(), 2, fault)
            self.assertIn(sentence, run.errors)
        self.write_faulty_job(*({"kind": "dead-worker", "worker": str(worker)}
                                for worker in range(5)))
        run = self.start()
        self.assertEqual(run.finish(), 3)
        self.assertIn("only 3 workers are alive for 4 stages", run.errors)


class Live(Case):
    """The example with its slow worker alone, and with a slow link as well."""

    def write_example(self, *faults):
        """examples/slow-worker.toml with other faults than its own, and shorter."""
        text = EXAMPLE.read_text()
        text = text[:text.index("[[fault]]")].replace("steps = 130", "steps = 60")
        for fault in faults:
            text += "[[fault]]\n"
            text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in fault.items())
        self.job.write_text(text)

    def run_example(self, *faults):
        self.write_example(*faults)
        return self.train(f"--job.directory={self.folder / 'runs'}", PATIENT, name="live")

    def answered(self, run):
        """Whether each plan that was proposed is in force, the last one for 21 steps."""
        steps, reasons = run.plans_in_force()
        proposed = sum("is proposed" in reason for reason in reasons)
        return steps and len(steps) == proposed and len(run.metrics()) > steps[-1] + 21

    def expect_answered(self, *faults):
        """Waits for a plan that answers the faults, and checks the steps under it. How soon it is
        found depends on the machine: `tenuto bench live-mixtures` measures that."""
        self.write_example(*faults)
        run = self.start(f"--job.directory={self.folder / 'runs'}", "--job.steps=5000",
                         PATIENT, name="live")
        run.wait_for_steps(30)
        run.wait_until(lambda: self.answered(run), "a plan for what is slow")
        run.process.terminate()
        self.assertEqual(run.finish(), 143, run.errors)
        steps, reasons = run.plans_in_force()
        # Detected with the third slow step, reported when that step is committed.
        found = [event["step"] for event in run.events() if event["event"] == "detection"]
        self.assertLessEqual(found[0], 30 + 3 + 1)
        last = max(step for step in steps if step < len(run.metrics()) - 15)
        priced = float(re.search(r": ([0-9.]+) ms, [0-9.]+ % above",
                                 [of for of in reasons if "is proposed" in of][-1])[1])
        lines = run.metrics()
        self.assertEqual([line["step"] for line in lines], list(range(len(lines))))  # none lost
        self.assertEqual({line["epoch"] for line in lines}, {1})
        times = [line["iteration_ms"] for line in lines[last + 1:last + 21]]
        print(f"{min(times):.2f} to {max(times):.2f} ms, promised {priced:.2f} ms, from step "
              f"{last} on")
        self.assertLess(min(times), 1.15 * priced, reasons)
        self.assertGreater(statistics.median(times), 0.85 * priced, reasons)
        return run

    @another_case
    def test_a_slow_worker(self):
        run = self.expect_answered(SLOW)
        status = [event["reason"] for event in run.events() if event["event"] == "detection"]
        self.assertRegex(status[0], "worker 5|worker 1.1")

    def test_a_slow_worker_and_a_slow_link_at_once(self):
        run = self.expect_answered(SLOW, *LINK)
        found = " ".join(e["reason"] for e in run.events() if e["event"] == "detection")
        self.assertIn("link 2-3", found)

    @another_case
    def test_jitter_changes_no_plan(self):
        jitter = {"kind": "slow-link", "link": 1, "jitter_ms": 0.5}
        steps, reasons = self.run_example(jitter).plans_in_force()
        self.assertEqual(steps, [], reasons)


DEAD = {"kind": "dead-worker", "worker": "0.1"}
HALF = {"kind": "slow-worker", "worker": "1.2", "speed": 0.5}
PAIR = {"kind": "slow-link", "from": 5, "to": 6, "latency_ms": 12.0}
SLOW = {"kind": "slow-worker", "worker": "1.1", "speed": 0.5, "at_step": 30}
LINK = [{"kind": "slow-link", "from": a, "to": b, "latency_ms": 12.0, "at_step": 30}
        for a, b in ((2, 3), (3, 2))]
# A worker that a busy machine holds up for some seconds is not taken for dead.
PATIENT = "--resilience.silence_seconds=30"
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "slow-worker.toml"


if __name__ == "__main__":
    unittest.main()
