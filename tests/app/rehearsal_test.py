"""Injected slow links between real processes: when they begin and end, what the events say of
them, and that they change no loss."""
import json
import subprocess
import unittest

from harness import Case, LIMIT, TENUTO

QUIET = ("--job.checkpoint_every=0", "--job.validate_micros=0", "--job.validate_every=0")


class Rehearsal(Case):
    def add_faults(self, *faults):
        text = self.job.read_text()
        for fault in faults:
            text += "[[fault]]\n"
            text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in fault.items())
        self.job.write_text(text)

    def spans(self, run, step):
        """The ops of a traced step as they were, as (name, worker, start, end) in ms. Promised ops
        and waits have a category."""
        trace = json.loads((run.folder / f"trace-{step}.json").read_text())
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        return [(event["name"], event["pid"], event["ts"] / 1000,
                 (event["ts"] + event["dur"]) / 1000) for event in events
                if event["ph"] == "X" and "cat" not in event]

    def shortest_way(self, run, step):
        """The shortest time from the start of a send to its arrival, over all messages, in ms."""
        sent, arrived = {}, {}
        for name, _, start, end in self.spans(run, step):
            if "SEND_" in name:
                sent[name] = start
            if "RECV_" in name:
                arrived[name.replace("RECV", "SEND")] = end
        self.assertEqual(sent.keys(), arrived.keys())
        self.assertGreaterEqual(len(sent), 8)
        return min(arrived[name] - sent[name] for name in sent)

    def simulate(self, *arguments):
        found = subprocess.run([TENUTO, "simulate", str(self.job), "--json", *arguments], text=True,
                               capture_output=True, timeout=LIMIT)
        self.assertEqual(found.returncode, 0, found.stderr)
        return json.loads(found.stdout)

    def faults_told(self, run):
        return [(event["step"], event["reason"]) for event in run.events()
                if event["event"] == "fault"]

    def rehearse(self, clock):
        self.write_job(job__steps=9, job__trace_steps=[1, 4, 7], parallel__pipelines=1,
                       parallel__micros=4, device__clock=clock)
        undisturbed = self.losses(self.train(*QUIET, name="undisturbed"))
        self.add_faults({"kind": "slow-link", "link": 0, "latency_ms": 40, "at_step": 3,
                         "until_step": 6})
        run = self.train(*QUIET)
        self.assertEqual(self.losses(run), undisturbed)
        self.assertEqual(len(undisturbed), 9)
        told = [(3, "injected fault: from step 3 on 40 ms more each way on link 0"),
                (6, "injected fault ends at step 6: 40 ms more each way on link 0")]
        self.assertEqual(self.faults_told(run), told)
        for _, sentence in told:
            self.assertIn(sentence + "\n", run.output)
        self.assertGreaterEqual(self.shortest_way(run, 4), 40 - 1e-3)
        self.assertLess(self.shortest_way(run, 1), 40)
        self.assertLess(self.shortest_way(run, 7), 40)
        return run

    def test_on_the_virtual_clock(self):
        run = self.rehearse("virtual")
        self.assertIn("[[fault]]", (run.folder / "config.toml").read_text())
        # config.toml, the effective settings, is a job file that gives the same run.
        self.job = run.folder / "config.toml"
        again = self.train(name="again")
        self.assertEqual(self.losses(again), self.losses(run))
        self.assertEqual(self.faults_told(again), self.faults_told(run))

    def test_on_the_real_clock(self):
        self.rehearse("real")

    def test_the_latency_of_all_links_holds_on_the_real_clock(self):
        self.write_job(job__steps=3, job__trace_steps=[1], parallel__pipelines=1,
                       parallel__micros=4, device__clock="real", network__latency_ms=15)
        run = self.train(*QUIET)
        self.assertGreaterEqual(self.shortest_way(run, 1), 15 - 1e-3)

    def test_a_trace_is_replayed_and_priced(self):
        trace = self.folder / "links.csv"
        trace.write_text("2;0_1;30\n4;off\n5;0_1,1_2;10\n")
        self.write_job(job__steps=8, job__trace_steps=[1, 3, 6], parallel__stages=3,
                       parallel__pipelines=1, parallel__micros=4, parallel__order="zb-h1")
        self.add_faults({"kind": "slow-link-trace", "file": str(trace)})
        run = self.train(*QUIET)
        self.assertEqual([step for step, _ in self.faults_told(run)], [2, 4, 5, 5])
        price = self.simulate("--iterations", "8", "--update", "no")
        stretches = price["stretches"]
        self.assertEqual([(of["first_step"], of["end_step"]) for of in stretches],
                         [(0, 2), (2, 4), (4, 5), (5, 8)])
        self.assertAlmostEqual(price["total_ms"],
                               sum((of["end_step"] - of["first_step"]) * of["step_ms"]
                                   for of in stretches))
        self.assertEqual(stretches[1]["faults"], ["30 ms more each way on link 0"])
        if run.metrics()[-1]["lag_valid"]:
            for step, stretch in ((1, 0), (3, 1), (6, 3)):
                self.assertAlmostEqual(self.length(run, step), stretches[stretch]["step_ms"],
                                       delta=0.01 * stretches[stretch]["step_ms"])

    def test_forwards_that_run_again_last_as_long_as_priced(self):
        losses = []
        for which in ("none", "all"):
            self.write_job(job__steps=4, job__trace_steps=[2], parallel__stages=3,
                           parallel__pipelines=1, parallel__micros=4, parallel__recompute=which)
            run = self.train(*QUIET, name=which)
            price = self.simulate("--update", "no")
            self.assertEqual(price["recompute"], [0, 1, 2] if which == "all" else [])
            if run.metrics()[-1]["lag_valid"]:
                self.assertAlmostEqual(self.length(run, 2), price["makespan_ms"],
                                       delta=0.01 * price["makespan_ms"])
            losses.append(self.losses(run))
        self.assertEqual(*losses)

    def length(self, run, step):
        """From the first compute op of a traced step to the end of the last one, in ms."""
        ops = [(start, end) for name, _, start, end in self.spans(run, step)
               if name[4] in "FBIW" and name[3].isdigit()]
        return max(end for _, end in ops) - min(start for start, _ in ops)

    def test_blocking_messages_as_priced(self):
        """Real processes on the virtual clock; each has the device queue of its own worker."""
        for order in ("1f1b", "zb-h1", "zb-h2"):
            self.write_job(job__steps=4, job__trace_steps=[2], parallel__stages=4,
                           parallel__pipelines=1, parallel__micros=8, parallel__order=order,
                           device__forward_ms=[4, 5, 4, 5], device__backward_input_ms=[5, 5, 6, 5],
                           device__backward_weight_ms=[3.0], network__send="blocking",
                           parallel__dispatch="listed")
            self.add_faults({"kind": "slow-link", "link": 1, "latency_ms": 12},
                            {"kind": "slow-link", "link": 2, "latency_ms": 7})
            run = self.train(*QUIET, name=order)
            price = self.simulate()
            self.assertEqual((price["send"], price["update"]), ("blocking", False))
            offloaded = self.simulate("--send", "offloaded", "--update", "no")["makespan_ms"]
            if order != "1f1b":  # 1f1b pays the delay for each micro-batch either way
                self.assertGreater(price["makespan_ms"], 1.1 * offloaded)
            measured = self.length(run, 2)
            print(f"{order}: {measured:.6f} ms, priced {price['makespan_ms']:.6f} ms, offloaded "
                  f"{offloaded:.6f} ms")
            self.assertAlmostEqual(measured, price["makespan_ms"],
                                   delta=0.01 * price["makespan_ms"])

    def test_an_order_that_would_deadlock_is_refused(self):
        self.write_job(parallel__stages=2, parallel__pipelines=1, parallel__micros=8,
                       parallel__order="looped-bfs", parallel__dispatch="listed",
                       network__send="blocking")
        self.assertIn('network.send = "blocking" under order looped-bfs: nothing can move after',
                      self.train(expected=3).errors)

    def test_refusals(self):
        self.add_faults({"kind": "slow-link", "link": 1, "latency_ms": 5})
        run = self.train(expected=2)
        self.assertIn("fault[0].link 1 would join stages 1 and 2: 2 stages have the links 0 to 0",
                      run.errors)
        self.write_job(network__send="blocking", device__clock="real")
        self.assertIn('it needs device.clock = "virtual", found "real"',
                      self.train(expected=2).errors)


if __name__ == "__main__":
    unittest.main()
