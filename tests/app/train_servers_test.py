"""Runs of real processes whose parameters are kept by server shards."""
import json
import math
import os
import re
import statistics
import unittest

from harness import INT, KILL, another_case, busy_case
from restart_test import children_of
from survive_test import Survival

# Two replicas of two micro-batches each are workers 0 and 1; the two servers are workers 2 and 3.
REPLICAS, MICROS, SERVERS = 2, 2, 2
FULL = REPLICAS * MICROS  # micro-batches of a step
ALL_REDUCE = "--sync.architecture=all-reduce"
SYNCHRONOUS = (ALL_REDUCE, "--sync.mode=synchronous")  # all workers make each step together
STATE = re.compile(r"stage-0-range-(\d+)-(\d+)\.state")


class Served(Survival):
    """A small GPT that trains through server shards."""

    def setUp(self):
        super().setUp()
        self.write_server_job()

    def write_server_job(self, **more):
        settings = {"job__steps": 30, "job__checkpoint_every": 10, "job__validate_every": 0,
                    "job__validate_micros": 0, "data__paths": [self.write_text()],
                    "model__layers": 2, "model__width": 16, "model__heads": 2,
                    "model__sequence": 16, "optimizer__learning_rate": 0.01,
                    "optimizer__warm_up_steps": 2, "optimizer__clip": 0.0, "parallel__stages": 1,
                    "parallel__pipelines": REPLICAS, "parallel__micros": MICROS,
                    "parallel__micro_rows": 2, "device__kind": "cpu",
                    "sync__architecture": "servers", "sync__servers": SERVERS}
        self.write_job(**{**settings, **more})

    def start_endless(self, *arguments, **more):
        """Starts a run that a test ends."""
        self.need_torch()
        return self.start("--job.steps=100000", "--job.checkpoint_every=0", *arguments, **more)

    def interrupt(self, run):
        run.process.send_signal(INT)
        self.assertEqual(run.finish(), 130, f"{run.errors}{self.logs(run)}")

    def assert_steps(self, run, steps):
        """Each step once and in order, when the mass of so many steps was committed."""
        lines = run.metrics()
        self.assertEqual([line["step"] for line in lines], list(range(steps)))
        before = 0
        for line in lines:
            self.assertGreaterEqual(line["mass"], FULL * (line["step"] + 1))
            self.assertGreaterEqual(line["mass"], before)
            before = line["mass"]
            self.assertGreaterEqual(line["step_ms"], 0)
            self.assertGreaterEqual(line["age"], 0)
            self.assertGreaterEqual(line["dropped"], 0)
            self.assertGreater(line["tokens"], 0)
            self.assertGreaterEqual(line["epoch"], 1)
            self.assertTrue(line["mode"])
            if line["loss"] is not None:
                self.assertTrue(math.isfinite(line["loss"]))

    def assert_audited(self, run):
        """All keepers have applied what was decided, at each checkpoint and at the end."""
        pattern = re.compile(r"(\d+) updates, (\d+) micro-batches applied, (\d+) dropped, "
                             r"the same at all (\d+) keepers")
        saved = [reason for reason in self.told(run, "checkpoint") if "keepers" in reason]
        ends = self.told(run, "end")
        self.assertGreaterEqual(len(saved), 1, run.events())
        masses = []
        for reason in [*saved, ends[-1]]:
            found = pattern.search(reason)
            self.assertIsNotNone(found, reason)
            updates, applied, _, keepers = (int(number) for number in found.groups())
            self.assertGreater(updates, 0, reason)
            self.assertGreater(keepers, 0, reason)
            masses.append(applied)
        self.assertEqual(masses, sorted(masses))
        self.assertGreaterEqual(masses[-1], run.metrics()[-1]["mass"])

    def assert_learned(self, run, by=0.3):
        losses = [line["loss"] for line in run.metrics() if line["loss"] is not None]
        self.assertGreaterEqual(len(losses), 10)
        self.assertLess(statistics.mean(losses[-5:]), statistics.mean(losses[:5]) - by, losses)

    def modes(self, run):
        return {line["mode"] for line in run.metrics()}

    def assert_refused(self, arguments, word):
        """The run does not begin and writes nothing; one line says why."""
        run = self.train(*arguments, expected=2)
        self.assertEqual(run.output, "")
        self.assertEqual(run.errors.count("\n"), 1, run.errors)
        self.assertIn(word, run.errors)
        self.assertFalse((self.folder / "runs").exists())

    def assert_as_all_reduce(self, *arguments, by=0.3):
        """Trains in both ways, each update of all gradients. Returns the run of the job."""
        self.need_torch()
        expected = self.losses(self.train(*SYNCHRONOUS, *arguments, name="all-reduce"))
        run = self.train(*arguments, name="servers")
        self.assert_steps(run, 30)
        self.assert_learned(run, by)
        for line in run.metrics()[:5]:
            wanted = expected[line["step"]]
            self.assertIsNotNone(line["loss"], line)
            self.assertAlmostEqual(line["loss"], wanted, delta=1e-4 * wanted, msg=str(line))
        return run

    def is_there(self, run, worker):
        status = self.ask("status", run, "--json")
        if status.returncode != 0:
            return False
        return any(one["alive"] for one in json.loads(status.stdout)["processes"]
                   if one["worker"] == worker)

    def come_back(self, worker, total=REPLICAS + SERVERS):
        """A worker is killed on request, another process takes its place, and the run goes on."""
        run = self.start_endless("--resilience.restarts=1")
        run.wait_for_steps(3)
        self.assertEqual(sorted(run.workers()), list(range(total)))
        first = run.workers()[worker]
        answer = self.ask("inject", run, f"kill={worker}")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("done", answer.stdout)
        run.wait_until(lambda: run.workers().get(worker, first) != first, "it is started again")
        run.wait_until(lambda: self.is_there(run, worker), "it is in the run again")
        run.wait_for_steps(len(run.metrics()) + 10)
        self.interrupt(run)
        self.assert_steps(run, len(run.metrics()))
        self.assertEqual(len(self.told(run, "death")), 1, run.events())
        self.assertGreaterEqual(len(self.told(run, "join")), 1, run.events())
        self.assert_audited(run)


class Modes(Served):
    @busy_case
    def test_synchronous_as_with_all_reduce(self):
        run = self.assert_as_all_reduce()
        self.assertEqual(self.modes(run), {"synchronous"})
        for line in run.metrics():
            # In an update of two gradients each waits for half of the other one.
            self.assertAlmostEqual(line["age"], 0.5, msg=str(line))
            self.assertEqual(line["dropped"], 0)
        kinds = [event["event"] for event in run.events()]
        self.assertEqual((kinds.count("start"), kinds[-1]), (1, "end"))
        self.assertIn("checkpoint", kinds)
        placed = [event["reason"] for event in run.events() if event["event"] == "placement"]
        self.assertRegex(placed[0], r"^range 0: worker \d+ on host .+, standby worker \d+ on host ")
        self.assert_checkpoint(run, ranges=SERVERS)
        self.assert_recording(run)
        self.assertFalse(list(run.folder.glob("*.tmp")))

    def assert_recording(self, run):
        """The iterations are a recording, with as many samples of each replica."""
        first, *lines = (run.folder / "iterations.txt").read_text().splitlines()
        self.assertEqual(first, f"samples run replicas {REPLICAS}")
        samples = [line.split() for line in lines]
        self.assertGreaterEqual(len(samples), 20 * REPLICAS)
        for number, sample in enumerate(samples):
            self.assertEqual(len(sample), 8, sample)
            self.assertEqual(int(sample[0]), number % REPLICAS)
            self.assertGreater(int(sample[1]), 0)
            self.assertEqual(float(sample[7]), 1)

    def assert_checkpoint(self, run, ranges):
        """The newest checkpoint is of the end, and the states in it are those of all elements."""
        newest = run.checkpoints()[-1]
        self.assertGreaterEqual(newest, 30)
        folder = run.folder / f"checkpoint-{newest}"
        manifest = json.loads((folder / "manifest.json").read_text())
        self.assertEqual(manifest["step"], newest)
        for file in manifest["files"]:
            self.assertEqual((folder / file["name"]).stat().st_size, file["bytes"])
        self.assertTrue((folder / "record.state").exists())
        states = [STATE.fullmatch(entry.name) for entry in folder.iterdir()]
        spans = sorted((int(state[1]), int(state[2])) for state in states if state)
        self.assertEqual(len(spans), ranges)
        self.assertEqual([begin for begin, _ in spans], [0, *(end for _, end in spans[:-1])])

    @busy_case
    def test_validation_as_with_all_reduce(self):
        self.need_torch()
        losses, rights, runs = [], [], []
        for name, more in (("all-reduce", [ALL_REDUCE]), ("servers", [])):
            run = self.train("--job.steps=10", "--job.validate_every=4", "--job.validate_micros=3",
                             *more, name=name)
            losses.append({line["step"]: line["validation_loss"] for line in run.metrics()
                           if "validation_loss" in line})
            rights.append({line["step"]: line["validation_accuracy"] for line in run.metrics()
                           if "validation_accuracy" in line})
            runs.append(run)
        expected, found = losses
        self.assertEqual(sorted(expected), [3, 7, 9])
        self.assertEqual(sorted(found), [3, 7, 9])
        for step, loss in found.items():
            self.assertAlmostEqual(loss, expected[step], delta=1e-4 * expected[step], msg=str(step))
        for step, right in rights[1].items():  # a byte that is nearly as likely may change places
            self.assertAlmostEqual(right, rights[0][step], delta=0.02, msg=str(step))
        self.assertEqual(sorted(rights[1]), [3, 7, 9])
        served = runs[1]
        self.assert_steps(served, 10)
        self.assertRegex(served.output, r"validation loss .*\(step 10\)")
        self.assertRegex(served.output, r"accuracy +[0-9.]+ %")

    @another_case
    def test_asynchronous_replicas_validate(self):
        self.need_torch()
        run = self.train("--sync.mode=asynchronous", "--job.validate_every=10",
                         "--job.validate_micros=4")
        lines = run.metrics()
        self.assert_steps(run, 30)
        # A replica that falls behind by ten steps makes no validation of its own for them.
        self.assertIn("validation_loss", lines[-1])
        for line in lines:
            if "validation_loss" in line:
                self.assertEqual((line["step"] + 1) % 10, 0)
                self.assertTrue(math.isfinite(line["validation_loss"]))
        first = next(line["loss"] for line in lines if line["loss"] is not None)
        self.assertLess(lines[-1]["validation_loss"], first - 0.3)

    @busy_case
    @another_case
    def test_clipped_steps_as_with_all_reduce(self):
        # One server knows the norm of the whole model, so there is one range.
        run = self.assert_as_all_reduce("--optimizer.clip=0.5")
        self.assert_checkpoint(run, ranges=1)

    @another_case
    def test_plain_sgd_as_with_all_reduce(self):
        self.assert_as_all_reduce("--optimizer.kind=sgd", "--optimizer.learning_rate=0.3",
                                  "--optimizer.momentum=0.5", by=0.05)

    def test_asynchronous(self):
        self.need_torch()
        run = self.train("--sync.mode=asynchronous")
        self.assert_steps(run, 30)
        self.assert_learned(run)
        self.assertEqual(self.modes(run), {"asynchronous"})
        self.assertGreaterEqual(run.checkpoints()[-1], 30)

    def test_local_steps(self):
        self.need_torch()
        mode = "synchronous+local:2"
        run = self.train(f"--sync.mode={mode}")
        self.assert_steps(run, 30)
        self.assert_learned(run)
        self.assertEqual(self.modes(run), {mode})
        for line in run.metrics():
            # Each replica offers two iterations at once, and no update has less than all replicas.
            self.assertEqual(line["mass"] % (2 * FULL), 0, line)
            self.assertAlmostEqual(line["age"], 1.0, msg=str(line))
            self.assertEqual(line["dropped"], 0)
        self.assertGreaterEqual(run.checkpoints()[-1], 30)

    @another_case
    def test_local_steps_with_momentum_and_partial_updates(self):
        self.need_torch()
        mode = "asynchronous+local:3+outer:0.7,0.3"
        run = self.train(f"--sync.mode={mode}", "--job.steps=60", "--optimizer.clip=1")
        self.assert_steps(run, 60)
        self.assertEqual(self.modes(run), {mode})
        losses = [line["loss"] for line in run.metrics() if line["loss"] is not None]
        self.assertLess(statistics.mean(losses[-5:]), statistics.mean(losses[:5]) - 0.3, losses)

    @another_case
    def test_auto(self):
        self.need_torch()
        run = self.train("--sync.mode=auto", "--job.steps=200", "--optimizer.schedule=constant",
                         "--sync.learn_kappa=true")
        self.assert_steps(run, 200)
        self.assert_learned(run)
        # Whether the mode changes depends on the host. If it does, the event says from what.
        for event in run.events():
            if event["event"] != "mode":
                continue
            progress = [one["progress"] for one in event["alternatives"]]
            self.assertTrue(1 <= len(progress) <= 8, event)
            self.assertEqual(progress, sorted(progress, reverse=True))
            self.assertIn(event["alternatives"][0]["mode"], event["reason"])
            self.assertRegex(event["reason"], r"; kappa \d+\.\d\d")

    def test_a_person_changes_the_mode(self):
        run = self.start_endless()
        run.wait_for_steps(3)
        self.assertEqual(self.modes(run), {"synchronous"})
        status = json.loads(self.ask("status", run, "--json").stdout)
        self.assertEqual((status["situation"], status["mode"]), ("running", "synchronous"))
        self.assertEqual([(one["worker"], one["alive"]) for one in status["processes"]],
                         [(worker, True) for worker in range(REPLICAS + SERVERS)])
        answer = self.ask("inject", run, "sync.mode=asynchronous")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("done", answer.stdout)
        run.wait_until(lambda: run.metrics()[-1]["mode"] == "asynchronous", "the mode is in force")
        run.wait_until(lambda: any("asynchronous" in reason for reason in self.told(run, "mode")),
                       "the event of the mode")
        run.wait_until(lambda: any("asynchronous" in reason for reason in self.told(run, "update")),
                       "the event of its first update")
        for wish in ("sync.mode=sometimes", "link=0-1:30ms"):
            answer = self.ask("inject", run, wish)
            self.assertEqual(answer.returncode, 2, answer.stdout)
            self.assertEqual(answer.stderr.count("\n"), 1, answer.stderr)
        run.wait_for_steps(len(run.metrics()) + 3)
        self.interrupt(run)
        self.assert_steps(run, len(run.metrics()))


    @busy_case
    def test_a_person_begins_and_ends_local_steps(self):
        # The checkpoint has the moments of the one optimizer and the velocity of the outer step.
        run = self.start_endless("--optimizer.schedule=constant")
        run.wait_for_steps(3)
        for mode in ("synchronous+local:4+outer:0.9,0.3", "synchronous"):
            answer = self.ask("inject", run, f"sync.mode={mode}")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            run.wait_until(lambda mode=mode: run.metrics()[-1]["mode"] == mode, f"{mode}")
            run.wait_for_steps(len(run.metrics()) + 8)
        self.interrupt(run)
        lines = run.metrics()
        steps = len(lines)
        self.assert_steps(run, steps)
        before = [line["loss"] for line in lines if line["loss"] is not None]
        again = self.train("--resume", "--optimizer.schedule=constant",
                           "--sync.mode=synchronous+local:2", f"--job.steps={steps + 10}")
        self.assert_steps(again, steps + 10)
        # It goes on from the parameters that it has learned.
        later = [line["loss"] for line in again.metrics()[steps:] if line["loss"] is not None]
        self.assertTrue(later, again.metrics())
        self.assertLess(later[0], (before[0] + statistics.mean(before[-5:])) / 2)


class Killed(Served):
    def lose(self, worker):
        """A worker dies, and the run goes on to its end."""
        self.need_torch()
        run = self.start("--job.steps=200", "--resilience.restarts=1")
        run.wait_for_steps(3)
        workers = run.workers()
        self.assertEqual(sorted(workers), list(range(REPLICAS + SERVERS)))
        self.assertTrue(self.kill(run, worker))
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_gone(workers)
        self.assert_steps(run, 200)
        self.assert_learned(run)
        self.assertEqual(len(self.told(run, "death")), 1, run.events())
        self.assertGreaterEqual(run.checkpoints()[-1], 200)
        self.assert_audited(run)

    @busy_case
    def test_a_replica(self):
        self.lose(1)

    @busy_case
    def test_the_server_of_the_first_range(self):
        self.lose(2)

    @busy_case
    @another_case
    def test_a_replica_comes_back(self):
        self.come_back(0)

    @busy_case
    def test_the_server_of_the_first_range_comes_back(self):
        self.come_back(2)

    def end_without(self, *workers, sentence="", arguments=()):
        run = self.start_endless(*arguments, name="-".join(str(worker) for worker in workers))
        run.wait_for_steps(3)
        processes = run.workers()
        for worker in workers:
            os.kill(processes[worker], KILL)
        self.assertEqual(run.finish(), 75, f"{run.errors}{self.logs(run)}")
        self.assertIn(sentence, run.errors)
        self.assertIn("tenuto train", run.errors)  # how to continue
        self.assert_gone(processes)

    def test_without_replicas_or_keepers_the_run_ends_resumably(self):
        self.end_without(0, 1)
        self.end_without(2, 3)

    @another_case
    def test_a_death_ends_the_run_if_asked_to(self):
        self.end_without(1, sentence="killed by signal 9",
                         arguments=["--resilience.dead_workers=stop"])

    @another_case
    def test_the_death_of_the_coordinator_ends_the_run_resumably(self):
        run = self.start_endless()
        run.wait_for_steps(3)
        workers = run.workers()
        for process, words in children_of(run.process.pid).items():
            if "--parent" not in words:
                os.kill(process, KILL)
        self.assertEqual(run.finish(), 75, f"{run.errors}{self.logs(run)}")
        self.assert_gone(workers)
        self.assertIn("coordinator", run.errors)


class Resumed(Served):
    @busy_case
    def test_a_stopped_run_goes_on(self):
        run = self.start_endless("--optimizer.schedule=constant")
        run.wait_for_steps(30)
        workers = run.workers()
        self.interrupt(run)
        self.assert_gone(workers)
        lines = run.metrics()
        steps = len(lines)
        self.assert_steps(run, steps)
        # The checkpoint holds exactly the steps in the metrics.
        self.assertEqual(run.checkpoints(), [steps])
        self.assertIn("--resume", run.errors)
        before = [line["loss"] for line in lines if line["loss"] is not None]
        again = self.train("--resume", "--optimizer.schedule=constant",
                           f"--job.steps={steps + 10}")
        self.assert_steps(again, steps + 10)
        self.assert_audited(again)
        self.assertEqual(again.metrics()[:steps], lines)
        epochs = [line["epoch"] for line in again.metrics()]
        self.assertGreater(epochs[steps], epochs[steps - 1])
        # It goes on from the parameters that it has learned, not from new ones.
        later = [line["loss"] for line in again.metrics()[steps:] if line["loss"] is not None]
        self.assertLess(max(later), (before[0] + statistics.mean(before[-5:])) / 2)
        self.assertIn(f"all {steps + 10} steps of this run are done",
                      self.train("--resume", f"--job.steps={steps + 10}").errors)

    @busy_case
    def test_with_another_number_of_servers(self):
        self.need_torch()
        constant = "--optimizer.schedule=constant"
        expected = self.losses(self.train(constant, name="uninterrupted"))
        for steps, servers in ((10, 2), (20, 1), (30, 3)):
            more = ["--resume"] if steps > 10 else []
            run = self.train(constant, *more, f"--job.steps={steps}", f"--sync.servers={servers}")
            self.assert_steps(run, steps)
            self.assertEqual(run.checkpoints()[-1], steps)
            self.assert_ranges(run, servers)
        for begin in (0, 10, 20):
            losses = [(line["step"], line["loss"]) for line in run.metrics()[begin:begin + 10]]
            known = [(step, loss) for step, loss in losses if loss is not None and expected[step]]
            self.assertGreaterEqual(len(known), 5, losses)
            for step, loss in known:
                self.assertAlmostEqual(loss, expected[step], delta=1e-4 * expected[step],
                                       msg=f"step {step}")

    @another_case
    def test_with_clipping_and_its_text(self):
        self.need_torch()
        run = self.train("--job.steps=10")
        self.assert_ranges(run, SERVERS)
        self.assert_text(run)
        # Clipping needs one range, whose keeper knows the norm.
        run = self.train("--resume", "--job.steps=20", "--optimizer.clip=0.5")
        self.assert_steps(run, 20)
        self.assert_ranges(run, 1)
        self.assert_text(run)
        self.refuse_other_settings(run)

    def assert_ranges(self, run, ranges):
        folder = run.folder / f"checkpoint-{run.checkpoints()[-1]}"
        files = json.loads((folder / "manifest.json").read_text())["files"]
        self.assertEqual(sum(bool(STATE.fullmatch(file["name"])) for file in files), ranges)

    def assert_text(self, run):
        words = ("--prompt", "7 and ", "--bytes", "40", "--temperature", "0")
        printed = self.ask("sample", run, *words)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertEqual(len(printed.stdout), len("7 and ") + 40 + 1, printed.stdout)
        self.assertTrue(printed.stdout.startswith("7 and "), printed.stdout)
        self.assertIn("tenuto sample", run.output)

    def refuse_other_settings(self, run):
        """What the decider's record counts by is refused before the run begins."""
        for key, was, now in (("parallel.pipelines", REPLICAS, 3), ("parallel.micros", MICROS, 1)):
            with self.subTest(key):
                steps = len(run.metrics())
                refused = self.train("--resume", f"--{key}={now}", f"--job.steps={steps + 5}",
                                     expected=2)
                self.assertEqual(refused.errors.count("\n"), 1, refused.errors)
                self.assertIn(f"{key} = {was}, the job says {now}", refused.errors)
                self.assertEqual(len(run.metrics()), steps)

    @another_case
    def test_a_checkpoint_on_demand(self):
        run = self.start_endless()
        run.wait_for_steps(3)
        answer = self.ask("inject", run, "checkpoint")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        run.wait_until(run.checkpoints, "a checkpoint")
        run.wait_for_steps(len(run.metrics()) + 3)
        self.interrupt(run)
        self.assertEqual(len(run.checkpoints()), 2)

    def test_checkpoints_of_the_other_architecture_are_refused(self):
        self.need_torch()
        for name, first, second in (("served", [], [ALL_REDUCE]), ("reduced", [ALL_REDUCE], [])):
            with self.subTest(name):
                self.train("--job.steps=5", *first, name=name)
                refused = self.train("--resume", "--job.steps=8", *second, name=name, expected=2)
                self.assertEqual(refused.output, "")
                self.assertEqual(refused.errors.count("\n"), 1, refused.errors)
                self.assertIn("checkpoint-", refused.errors)
                self.assertEqual(len(refused.metrics()), 5)


class Refusals(Served):
    def test_bad_settings_write_nothing(self):
        for arguments, word in (
                (["--sync.mode=sometimes"], "sync.mode"),
                (["--sync.mode=x:3"], "sync.mode"),
                (["--sync.servers=0"], "sync.servers"),
                (["--parallel.stages=2", "--optimizer.clip=1"], "optimizer.clip"),
                (["--parallel.stages=2", "--model.tied=true"], "model.tied"),
                (["--parallel.chunks=2"], "parallel.chunks"),
                (["--device.kind=paced"], "device.kind"),
                (["--parallel.pipelines=1", "--sync.mode=asynchronous"], "sync.mode"),
                (["--sync.servers=3", "--optimizer.clip=1"], "sync.servers")):
            with self.subTest(arguments):
                self.assert_refused(arguments, word)


if __name__ == "__main__":
    unittest.main()
