"""Signals, deaths, full disks, NaNs: each ends with a sentence that says how to continue."""
import os
import pathlib
import random
import re
import subprocess
import time
import unittest

from harness import Case, INT, KILL, LIMIT, TENUTO, TERM

SENTENCE = re.compile(r"worker (\d) \(stage (\d) of pipeline (\d)\) was killed by signal 9 in step "
                      r"(\d+).*; the checkpoint of step (\d+) is in (.*); continue with: tenuto "
                      r"train .* --resume")


class Signals(Case):
    def stopped(self, signal, expected):
        run = self.start("--job.steps=5000", "--job.checkpoint_every=0")
        run.wait_for_steps(3)
        workers = run.workers()
        self.assertEqual(len(workers), 4)
        begin = time.monotonic()
        run.process.send_signal(signal)
        self.assertEqual(run.finish(), expected, run.errors)
        print(f"signal {signal}: ended after {time.monotonic() - begin:.3f} s")
        self.assert_gone(workers)
        # The checkpoint holds exactly the steps in the metrics.
        self.assertEqual(run.checkpoints(), [len(run.metrics())])
        self.assertIn(f"stopped by signal {int(signal)} after step {len(run.metrics()) - 1}",
                      run.errors)
        return run

    def test_terminate(self):
        run = self.stopped(TERM, 143)
        steps = len(run.metrics())
        more = self.train("--resume", f"--job.steps={steps + 2}")
        self.assertEqual([line["step"] for line in more.metrics()], list(range(steps + 2)))

    def test_interrupt(self):
        self.stopped(INT, 130)

    def test_a_second_signal_ends_a_long_step(self):
        run = self.start("--job.steps=100", "--device.forward_ms=100", "--parallel.micros=16")
        run.wait_for_steps(1)
        run.send_and_wait(TERM)  # two pending signals would become one
        run.process.send_signal(TERM)
        self.assertEqual(run.finish(), 143)
        self.assertIn("twice", run.errors)

    def test_before_the_first_step(self):
        run = self.start()
        run.wait_until(lambda: run.workers() or run.process.poll() is not None,
                       "a worker is started")
        run.process.send_signal(TERM)
        self.assertIn(run.finish(), (143, 0, -TERM))

    def test_a_checkpoint_on_demand(self):
        run = self.start("--job.steps=5000", "--job.checkpoint_every=0")
        run.wait_for_steps(2)
        run.process.send_signal(10)  # SIGUSR1
        run.wait_until(run.checkpoints, "a checkpoint")
        self.assertEqual(len(run.checkpoints()), 1)
        self.assertIsNone(run.process.poll())
        run.process.send_signal(TERM)
        self.assertEqual(run.finish(), 143)


class Deaths(Case):
    def test_a_killed_launcher_leaves_no_process(self):
        for moment in (0.0, 0.02, 0.2):
            run = self.start("--job.steps=5000", name=f"moment-{moment}")
            run.wait_for_steps(1)
            time.sleep(moment)
            workers = run.workers()
            self.assertEqual(len(workers), 4)
            run.process.kill()
            print(f"no worker was left after {self.assert_gone(workers):.3f} s")
        # The folder is free again: another run may replace this one.
        run = self.start("--overwrite", "--job.steps=3", name="moment-0.0")
        self.assertEqual(run.finish(), 0)

    def test_a_killed_worker_is_named_and_nothing_is_lost(self):
        chance = random.Random(5)
        undisturbed = self.losses(self.train(name="undisturbed"))
        for victim in range(4):
            name = f"victim-{victim}"
            run = self.start("--job.checkpoint_every=0", "--resilience.dead_workers=stop",
                             name=name)
            run.wait_for_steps(2)
            time.sleep(chance.random() * 0.1)
            workers = run.workers()
            if victim not in workers:
                self.assertEqual(run.finish(), 0)
                continue
            begin = time.monotonic()
            os.kill(workers[victim], KILL)
            code = run.finish()
            print(f"worker {victim} killed: ended after {time.monotonic() - begin:.3f} s")
            if code == 0:  # the worker had finished before
                continue
            self.assertEqual(code, 75, run.errors)
            self.assert_gone(workers)
            found = SENTENCE.search(run.errors)
            self.assertTrue(found, run.errors)
            self.assertEqual((int(found[1]), int(found[2]), int(found[3])),
                             (victim, victim % 2, victim // 2))
            steps = int(found[5])
            self.assertEqual(run.checkpoints(), [steps])
            self.assertIn(steps - int(found[4]), (0, 1))
            again = self.train("--resume", "--resilience.dead_workers=stop", name=name)
            losses = self.losses(again)
            self.assertEqual(list(losses), list(range(20)))
            for step, loss in losses.items():
                if loss is not None:  # a part of the loss of the broken step died with the worker
                    self.assertEqual(loss, undisturbed[step])

    def test_without_another_holder_the_last_checkpoint_is_used(self):
        run = self.start("--parallel.pipelines=1", "--job.steps=5000", "--job.checkpoint_every=4")
        run.wait_for_steps(6)
        os.kill(run.workers()[1], KILL)
        self.assertEqual(run.finish(), 75, run.errors)
        self.assertIn("no live worker holds stage 1", run.errors)
        self.assertEqual(run.checkpoints()[-1] % 4, 0)

    def test_without_any_checkpoint_the_run_can_be_tried_again(self):
        run = self.start("--parallel.pipelines=1", "--job.steps=5000", "--job.checkpoint_every=0")
        run.wait_for_steps(2)
        os.kill(run.workers()[0], KILL)
        self.assertEqual(run.finish(), 75, run.errors)
        self.assertRegex(run.errors, "there is no checkpoint yet; begin again with: tenuto train "
                                     ".* --overwrite")
        ends = [event["reason"] for event in run.events() if event["event"] == "end"]
        self.assertEqual([reason.count("was killed by signal 9") for reason in ends], [1])

    def wait_for_workers(self, run):
        run.wait_until(lambda: len(run.workers()) == 4 or run.process.poll() is not None,
                       "all workers are started")
        return run.workers()

    def kill_before_the_first_step(self, run, go):
        """Kills worker 1 while no step can begin, because worker 3 waits for the file `go`."""
        os.kill(self.wait_for_workers(run)[1], KILL)
        go.touch()

    def test_a_worker_dead_before_the_first_step_is_replaced(self):
        go = self.folder / "go"
        wrapper = self.folder / "wrapper.py"
        wrapper.write_text("import os, pathlib, sys, time\n"
                           "parent = os.getppid()\n"
                           "if sys.argv[sys.argv.index('--worker') + 1] == '3':\n"
                           f"    while not pathlib.Path({str(go)!r}).exists():\n"
                           "        if os.getppid() != parent: sys.exit(1)\n"
                           "        time.sleep(0.01)\n"
                           "os.execv(sys.argv[1], sys.argv[1:])\n")
        self.write_job(coordinator__launch=["python3", str(wrapper)])
        run = self.start("--resilience.restarts=1")
        self.kill_before_the_first_step(run, go)
        self.assertEqual(run.finish(), 0, f"{run.errors}{run.output}{self.logs(run)}")
        self.assertEqual([line["step"] for line in run.metrics()], list(range(20)))
        told = [event["reason"] for event in run.events() if event["event"] == "death"]
        self.assertEqual(len(told), 1)
        self.assertRegex(told[0], "worker 1 .* was killed by signal 9 before its first step")
        self.assertTrue((run.folder / "plan-2.json").exists())
        go.unlink()
        run = self.start(name="once")
        self.kill_before_the_first_step(run, go)
        self.assertEqual(run.finish(), 75, run.errors)
        self.assertFalse((run.folder / "coordinator.json").exists())

    def test_programs_that_start_workers_end_with_the_launcher(self):
        self.write_job(coordinator__launch=["sh", "-c", "exec sleep 1000"])
        run = self.start()

        def sleepers():
            text = pathlib.Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children")
            children = {int(number): number for number in text.read_text().split()}
            return {process: process for process in children if pathlib.Path(
                f"/proc/{process}/cmdline").read_bytes().startswith(b"sleep")}

        run.wait_until(lambda: len(sleepers()) == 4 or run.process.poll() is not None,
                       "all programs are started")
        started = sleepers()
        run.process.kill()
        self.assert_gone(started)

    def test_a_stopped_worker_ends_the_run_as_hanging(self):
        run = self.start("--job.steps=5000", "--network.silence_seconds=10",
                         "--resilience.dead_workers=stop")
        run.wait_for_steps(2)
        workers = run.workers()
        os.kill(workers[2], 19)  # SIGSTOP
        self.assertEqual(run.finish(), 75, run.errors)
        self.assert_gone(workers)
        self.assertRegex(run.errors, "no op or message completed for 10000 ms|was silent for")


class BrokenConnections(Case):
    def add_break(self, **keys):
        lines = "".join(f"{key} = {value}\n" for key, value in keys.items())
        self.job.write_text(f'{self.job.read_text()}[[fault]]\nkind = "broken-connection"\n{lines}')

    def told(self, run, kind):
        return [(event["step"], event["reason"]) for event in run.events()
                if event["event"] == kind]

    def rehearse(self, **settings):
        self.write_job(job__steps=12, parallel__micros=8, **settings)
        undisturbed = self.losses(self.train(name="undisturbed"))
        self.add_break(link=0, at_step=3)
        self.add_break(link=0, at_step=7)
        self.add_break(**{"from": 3, "to": 2, "at_step": 9})
        run = self.start()
        self.assertEqual(run.finish(), 0, run.errors)
        self.assertEqual(self.losses(run), undisturbed)
        self.assertEqual(len(undisturbed), 12)
        repairs = self.told(run, "repair")
        for step, sentence in repairs:
            self.assertRegex(sentence, f"the connection between worker [02] and worker [13] broke "
                                       fr"in step {step} and was repaired after [0-9.]+ ms")
            self.assertIn(sentence, run.output)
        pairs = [(step, sentence.split(" broke")[0][-1]) for step, sentence in repairs]
        self.assertEqual(sorted(pairs), [(3, "1"), (3, "3"), (7, "1"), (7, "3"), (9, "3")])
        self.assertEqual([step for step, _ in self.told(run, "fault")], [3, 7, 9])
        self.assertIn("injected fault: in step 3 the connection of link 0 breaks", run.output)
        return run

    def test_the_run_goes_on_with_the_same_losses(self):
        # A broken connection is no slow link. The virtual clock shows this; on the real clock the
        # other processes of a busy machine do make links slow.
        self.assertEqual(self.told(self.rehearse(), "detection"), [])

    def test_more_repairs_than_a_heartbeat_holds(self):
        # A heartbeat carries the last 16 repairs: of 20, one a step, each is reported once.
        steps = range(1, 21)
        self.write_job(job__steps=22)
        undisturbed = self.losses(self.train(name="undisturbed"))
        for step in steps:
            self.add_break(link=0, at_step=step)
        run = self.start()
        self.assertEqual(run.finish(), 0, run.errors)
        self.assertEqual(self.losses(run), undisturbed)
        told = self.told(run, "repair")
        # Each of the two pipelines has the link.
        self.assertEqual(sorted(step for step, _ in told), sorted([*steps, *steps]), told)

    def test_on_the_real_clock_with_large_messages(self):
        self.rehearse(device__clock="real", device__message_bytes=2 << 20)

    def test_a_worker_killed_while_its_connection_is_broken(self):
        self.write_job(job__steps=5000, job__checkpoint_every=0,
                       resilience__dead_workers="stop")
        self.add_break(link=0, at_step=4)
        run = self.start()
        run.wait_for_steps(4)
        begin = time.monotonic()
        os.kill(run.workers()[1], KILL)
        self.assertEqual(run.finish(), 75, run.errors)
        print(f"killed near a break: ended after {time.monotonic() - begin:.3f} s")
        self.assertTrue(SENTENCE.search(run.errors), run.errors)


class Disk(Case):
    def test_a_full_disk(self):
        # No file may grow beyond the limit: the shards would, the metrics do not.
        self.write_job(device__parameter_bytes=4 << 20, job__checkpoint_every=3)
        run = self.start(limit_file=1 << 20)
        self.assertEqual(run.finish(), 1, run.errors)
        self.assertRegex(run.errors, r"worker \d \(stage \d of pipeline \d\): .*stage-\d.*")
        self.assertIn("File too large", run.errors)
        self.assertEqual(run.checkpoints(), [])
        self.assertFalse(list(run.folder.glob("*.tmp")))

    def test_a_disk_that_is_full_for_the_metrics(self):
        # Without a journal, because the journal would reach the limit first.
        run = self.start("--job.steps=5000", "--job.checkpoint_every=50",
                         "--coordinator.store=memory", limit_file=20000)
        self.assertEqual(run.finish(), 1, run.errors)
        self.assertIn("metrics.jsonl", run.errors)
        lines = run.metrics()  # each line is whole
        self.assertEqual([line["step"] for line in lines], list(range(len(lines))))


class Numbers(Case):
    def test_a_loss_that_is_nan(self):
        self.need_torch()  # paced devices have only whole numbers
        text = self.folder / "text.txt"
        text.write_text("the note is held for its full value, and not a moment longer\n" * 400)
        self.write_job(data__paths=[str(text)], device__kind="cpu", optimizer__kind="sgd",
                       optimizer__learning_rate=1e30, optimizer__warm_up_steps=0,
                       optimizer__clip=0.0, job__checkpoint_every=0, job__validate_every=0,
                       model__layers=2, model__width=16, model__heads=2, model__sequence=16)
        run = self.start("--job.steps=200")
        self.assertEqual(run.finish(), 1, run.errors)
        found = re.search(r"loss or gradient of step (\d+) is not finite \(seen by worker \d",
                          run.errors)
        self.assertTrue(found, run.errors)
        self.assertEqual(run.checkpoints(), [int(found[1])])


class Strangers(Case):
    def coordinator(self):
        run = self.start("--parallel.stages=1", "--parallel.pipelines=1", command="coordinator",
                         environment={"TENUTO_TOKEN": "secret"})
        line = run.process.stdout.readline()
        return run, re.search(r"--coordinator (\S+)", line)[1]

    def worker(self, address, token, job="small", number=0):
        return subprocess.run(
            [TENUTO, "worker", "--coordinator", address, "--job", job, "--worker", str(number)],
            env={**os.environ, "TENUTO_TOKEN": token}, text=True, capture_output=True,
            timeout=LIMIT)

    def test_processes_without_the_token_are_refused(self):
        run, address = self.coordinator()
        wrong = self.worker(address, "guess!")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("the token of worker 0 is not the one of job 'small'", wrong.stderr)
        self.assertIn("there is no worker 7", self.worker(address, "secret", number=7).stderr)
        self.assertIn("belongs to job 'other'", self.worker(address, "secret", job="other").stderr)
        right = self.worker(address, "secret")
        self.assertEqual(right.returncode, 0, right.stderr)
        self.assertEqual(run.finish(), 0, run.errors)
        self.assertEqual(len(run.metrics()), 20)

    def test_the_token_is_on_no_command_line(self):
        self.write_job(job__steps=5000, job__checkpoint_every=1,
                       coordinator__token="a-secret-to-keep")
        run = self.start()
        run.wait_for_steps(3)
        for process in [run.process.pid, *run.workers().values()]:
            with open(f"/proc/{process}/cmdline", "rb") as arguments:
                self.assertNotIn(b"a-secret-to-keep", arguments.read())

        def files_with_token():
            known = []
            for folder, _, names in os.walk(run.folder):
                for name in names:
                    file = pathlib.Path(folder) / name
                    try:
                        if b"a-secret-to-keep" in file.read_bytes():
                            known.append(file)
                    except FileNotFoundError:
                        pass  # of a checkpoint that has been deleted since
            return known

        # Only the file from which `tenuto status` takes it has the token, and only its owner may
        # read that file.
        known = files_with_token()
        self.assertEqual([file.name for file in known], ["coordinator.json"])
        self.assertEqual(known[0].stat().st_mode & 0o077, 0)
        run.process.send_signal(TERM)
        run.finish()
        # The run has ended, so no checkpoint is deleted while this looks.
        self.assertTrue(list(run.folder.glob("checkpoint-*/*.json")))
        self.assertEqual([file.name for file in files_with_token()], [])

    def test_an_absent_coordinator_is_reported(self):
        sentence = self.worker("127.0.0.1:1", "secret").stderr
        self.assertIn("no coordinator answers at 127.0.0.1:1", sentence)


if __name__ == "__main__":
    unittest.main()
