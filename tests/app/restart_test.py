"""The coordinator dies and comes back while the workers keep training."""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import time
import unittest

from harness import Case, KILL, LIMIT, SANITIZED, SILENCE, STOP, TENUTO, TERM, alive, another_case

CONT = signal.SIGCONT


def children_of(process):
    """Direct children of a process, by their command lines."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(status[1]) == process and status[0] != "Z":
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().split("\0")
        except (OSError, ValueError):
            continue
    return found


def free_address():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


class Restart(Case):
    def coordinator(self, run, limit=LIMIT, but=None):
        """The current coordinator, a child of the launcher; waits for one other than `but`."""
        end = time.monotonic() + limit
        while time.monotonic() < end and run.process.poll() is None:
            for process, words in children_of(run.process.pid).items():
                if "--parent" not in words and process != but:
                    return process
            time.sleep(0.001)
        return None

    def told(self, run, kind):
        return [event["reason"] for event in run.events() if event["event"] == kind]

    def assert_undisturbed(self, run, steps, undisturbed):
        """Every step once and in order, with the losses of a run whose coordinator lived."""
        lines = run.metrics()
        self.assertEqual([line["step"] for line in lines], list(range(steps)))
        self.assertEqual(self.losses(run), undisturbed)
        for line in (run.folder / "events.jsonl").read_text().splitlines():
            json.loads(line)

    def kill_again_and_again(self, run, times, pause):
        """Kills one coordinator after another, each after further steps; returns how many."""
        chance = random.Random(3)
        for number in range(times):
            run.wait_for_steps(len(run.metrics()) + 1 + chance.randrange(2))
            time.sleep(chance.random() * pause)
            process = self.coordinator(run)
            if process is None:
                break
            os.kill(process, KILL)
            self.coordinator(run, but=process)
        else:
            return times
        return number

    def start_etcd(self):
        """Starts an etcd of one member, which ends with the test; returns its address."""
        if shutil.which("etcd") is None:
            self.skipTest("no etcd on this machine (package etcd-server)")

        client, peer = (free_address() for _ in range(2))
        log = open(self.folder / "etcd.log", "w")
        self.addCleanup(log.close)
        self.etcd = server = subprocess.Popen(
            ["etcd", "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync",
             "--listen-client-urls", f"http://{client}", "--advertise-client-urls",
             f"http://{client}", "--listen-peer-urls", f"http://{peer}",
             "--initial-advertise-peer-urls", f"http://{peer}", "--initial-cluster",
             f"default=http://{peer}"], stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        return client


class Killed(Restart):
    def write_small_job(self, **more):
        self.write_job(**{"job__steps": 150, "job__checkpoint_every": 20, "job__validate_every": 40,
                          "device__forward_ms": [3.0], "device__backward_input_ms": [3.0],
                          "device__backward_weight_ms": [3.0], **more})

    def disturbed(self, times, **more):
        self.write_small_job(**more)
        undisturbed = self.losses(self.train("--coordinator.store=journal",
                                             "--coordinator.etcd=[]", name="undisturbed"))
        run = self.start()
        run.wait_for_steps(2)
        workers = run.workers()
        killed = self.kill_again_and_again(run, times, 0.03)
        self.assertEqual(killed, times)
        self.assertEqual(run.finish(), 0, f"{run.errors}{run.output}{self.logs(run)}")
        self.assert_gone(workers)
        self.assert_undisturbed(run, 150, undisturbed)
        self.assertEqual(len(self.told(run, "coordinator")), times)
        self.assertEqual(self.told(run, "death"), [])
        self.assertEqual(run.checkpoints(), [120, 140, 150])
        self.assertEqual({line["epoch"] for line in run.metrics()}, {1})
        periods = [line["period_ms"] for line in run.metrics() if "period_ms" in line]
        print(f"{times} coordinators killed: steps of {statistics.median(periods):.1f} ms, the "
              f"longest {max(periods):.1f} ms")
        return run

    def test_twenty_times_under_load(self):
        self.disturbed(5 if SANITIZED else 20)

    @another_case
    def test_twenty_times_with_etcd(self):
        address = self.start_etcd()
        self.disturbed(20, coordinator__store="etcd",
                       coordinator__etcd=["127.0.0.1:1", address])

    def start_with_etcd(self):
        """A run that has etcd as its store and has done five steps."""
        self.etcd_address = self.start_etcd()
        self.write_small_job(coordinator__store="etcd", coordinator__etcd=[self.etcd_address])
        run = self.start()
        run.wait_for_steps(5)
        return run

    def test_etcd_goes_away_for_a_while(self):
        run = self.start_with_etcd()
        self.etcd.send_signal(STOP)
        os.kill(self.coordinator(run), KILL)
        time.sleep(1)
        self.etcd.send_signal(CONT)
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assertEqual([line["step"] for line in run.metrics()], list(range(150)))

    def test_etcd_goes_away_for_good(self):
        run = self.start_with_etcd()
        workers = run.workers()
        self.etcd.kill()
        self.assertEqual(run.finish(), 75, f"{run.errors}{self.logs(run)}")
        self.assert_gone(workers)
        self.assertRegex(self.told(run, "coordinator")[0], "etcd")
        self.assertIn(self.etcd_address, run.errors)

    def test_coordinator_and_worker_killed_together(self):
        self.write_small_job()
        run = self.start()
        run.wait_for_steps(5)
        workers = run.workers()
        os.kill(self.coordinator(run), KILL)
        os.kill(workers[2], KILL)
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assert_gone(workers)
        self.assertEqual([line["step"] for line in run.metrics()], list(range(150)))
        self.assertEqual(len(self.told(run, "death")), 1)
        self.assertRegex(self.told(run, "death")[0], "worker 2 .* was killed by signal 9")

    def test_a_stopped_coordinator_is_replaced_and_ended(self):
        self.write_small_job(resilience__silence_seconds=float(SILENCE))
        run = self.start()
        run.wait_for_steps(5)
        first = self.coordinator(run)
        os.kill(first, STOP)
        second = self.coordinator(run, but=first)
        self.assertIsNotNone(second)
        self.assertFalse(alive(first))
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assertEqual([line["step"] for line in run.metrics()], list(range(150)))

    def test_a_stop_survives_the_coordinator(self):
        self.write_small_job(job__steps=5000, job__checkpoint_every=0)
        run = self.start()
        run.wait_for_steps(3)
        first = self.coordinator(run)
        os.kill(first, STOP)  # so that it does not hear of the request
        run.send_and_wait(TERM)
        os.kill(first, KILL)
        self.assertEqual(run.finish(), 143, f"{run.errors}{self.logs(run)}")
        self.assertEqual(run.checkpoints(), [len(run.metrics())])

    def test_without_a_store_the_run_ends_resumably(self):
        self.write_small_job(coordinator__store="memory")
        run = self.start()
        run.wait_for_steps(25)
        workers = run.workers()
        os.kill(self.coordinator(run), KILL)
        self.assertEqual(run.finish(), 75, run.errors)
        self.assert_gone(workers)
        self.assertIn('the coordinator was killed by signal 9, and coordinator.store = "memory" '
                      "does not survive that", run.errors)
        self.assertIn("--resume", run.errors)
        self.train("--resume", "--coordinator.store=journal")

    def test_coordinators_killed_without_a_step_in_between(self):
        self.write_small_job(device__forward_ms=[400.0])
        # The leak check at exit is a child process too: killing it would hang its parent for ever.
        without = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        run = self.start(environment={"ASAN_OPTIONS": without})
        run.wait_for_steps(1)
        workers = run.workers()
        last = None
        end = time.monotonic() + LIMIT
        while run.process.poll() is None:
            self.assertLess(time.monotonic(), end, "it goes on and on")
            process = self.coordinator(run, but=last)
            if process is not None:
                # The coordinator that gives up ends by itself, maybe before this kill.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, KILL)
            last = process
        self.assertEqual(run.finish(), 75, run.errors)
        self.assert_gone(workers)
        self.assertIn("others before it, and no step was committed between them", run.errors)


class StandBy(Restart):
    def stand_by(self, listen):
        return self.start("--stand-by", f"--coordinator.listen={listen}", command="coordinator",
                          environment={"TENUTO_TOKEN": "secret"})

    def test_a_coordinator_at_another_address_takes_over(self):
        """The launcher of the one that leads is killed; of two others one leads, and one stays."""
        self.write_job(job__steps=200, parallel__stages=1, parallel__pipelines=1,
                       coordinator__store="etcd", coordinator__etcd=[self.start_etcd()])
        addresses = [free_address() for _ in range(3)]
        first = self.stand_by(addresses[0])
        first.wait_until((first.folder / "coordinator.json").exists, "an address")
        others = [self.stand_by(listen) for listen in addresses[1:]]
        for other in others:
            self.assertIn("this one stands by", other.process.stderr.readline())
        worker = subprocess.Popen(
            [TENUTO, "worker", "--coordinator", ",".join(addresses), "--job", "small",
             "--worker", "0"], env={**os.environ, "TENUTO_TOKEN": "secret"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        first.wait_for_steps(5)
        first.process.kill()
        first.process.wait()
        for other in others:
            self.assertEqual(other.finish(), 0, other.errors)
        self.assertEqual(worker.wait(timeout=LIMIT), 0)
        self.assertEqual([line["step"] for line in first.metrics()], list(range(200)))
        self.assertRegex(self.told(first, "coordinator")[0], "a new coordinator continues the run")
        self.assertEqual(sum("it ended at step 200" in other.errors for other in others), 1)

    def test_what_cannot_stand_by_is_refused(self):
        for flags, sentence in (
                ((), 'coordinator.store is "journal", and only with "etcd"'),
                (("--overwrite",), "--stand-by continues what another coordinator has begun"),
                (("--coordinator.store=etcd", '--coordinator.etcd=["127.0.0.1:1"]'),
                 "give a port")):
            run = self.start("--stand-by", *flags, command="coordinator")
            self.assertEqual(run.finish(), 2, run.errors)
            self.assertIn(sentence, run.errors)


class Rehearsed(Restart):
    def test_killed_between_the_journal_and_the_send(self):
        undisturbed = self.losses(self.train(name="undisturbed"))
        for step in (0, 3, 5, 10, 19):  # 5: with a checkpoint
            self.job.write_text(self.job.read_text() + "[[fault]]\nkind = \"kill-coordinator\"\n"
                                                       f"at_step = {step}\n")
        run = self.train()
        self.assert_undisturbed(run, 20, undisturbed)
        self.assertEqual(run.checkpoints(), [10, 15, 20])
        self.assertEqual(self.told(run, "fault"), [
            f"injected fault: in step {step} the coordinator is killed"
            for step in (0, 3, 5, 10, 19)])
        self.assertEqual(len(self.told(run, "coordinator")), 5)
        self.assertEqual(len(self.told(run, "start")), 0)  # it died before it could say so

    def ask(self, run, command, *words):
        """What `tenuto COMMAND RUN WORDS` prints; it must succeed."""
        answer = subprocess.run([TENUTO, command, str(run.folder), *words], text=True,
                                capture_output=True, timeout=LIMIT)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout

    def test_injected_coordinator_deaths(self):
        run = self.start("--job.steps=5000")
        run.wait_for_steps(3)
        for kind in ("kill", "kill"):
            first = self.coordinator(run)
            self.assertIn(f"{kind}=coordinator: done in step",
                          self.ask(run, "inject", f"{kind}=coordinator"))
            self.assertIsNotNone(self.coordinator(run, but=first))
            run.wait_for_steps(len(run.metrics()) + 4)
        status = json.loads(self.ask(run, "status", "--json"))
        self.assertEqual((status["situation"], status["members"], status["epoch"]),
                         ("running", 4, 1))
        run.process.terminate()
        self.assertEqual(run.finish(), 143, run.errors)
        self.assertEqual(len(self.told(run, "coordinator")), 2)


    def test_treatments_outlive_the_coordinator(self):
        run = self.start("--job.steps=5000")
        run.wait_for_steps(3)
        for wish in ("resilience.slow_links=off", "resilience.mode=observe",
                     "resilience.slow_workers=adapt"):
            self.ask(run, "inject", wish)
        first = self.coordinator(run)
        self.ask(run, "inject", "kill=coordinator")
        self.assertIsNotNone(self.coordinator(run, but=first))
        run.wait_for_steps(len(run.metrics()) + 4)
        status = json.loads(self.ask(run, "status", "--json"))
        self.assertEqual([status[key] for key in ("treatment", "slow_links", "slow_workers")],
                         ["observe", "off", "adapt"])
        self.assertIn("all troubles: observe, slow links: off, slow workers: adapt",
                      self.ask(run, "status"))
        run.process.terminate()
        self.assertEqual(run.finish(), 143, run.errors)


class Pause(Restart):
    """The death of a coordinator does not lengthen steps of 0.1 s: prints both times."""

    @another_case
    def test_with_a_journal(self):
        self.look_at_pauses()

    @another_case
    def test_with_etcd(self):
        self.look_at_pauses(coordinator__store="etcd",
                            coordinator__etcd=["127.0.0.1:1", self.start_etcd()])

    def look_at_pauses(self, **more):
        self.write_job(job__steps=70, job__checkpoint_every=0, device__forward_ms=[8.0],
                       device__backward_input_ms=[8.0], device__backward_weight_ms=[8.0],
                       parallel__micros=3, **more)
        run = self.start()
        run.wait_for_steps(3)
        chance, seen, last = random.Random(5), len(run.metrics()), time.monotonic()
        due = seen + 2
        quiet, disturbed, struck = [], [], False
        while run.process.poll() is None:
            count = len(run.metrics())
            now = time.monotonic()
            if count > seen:
                (disturbed if struck else quiet).append((now - last) / (count - seen))
                seen, last, struck = count, now, False
                if count >= due:
                    time.sleep(chance.random() * 0.1)
                    process = self.coordinator(run)
                    if process is not None and run.process.poll() is None:
                        os.kill(process, KILL)
                        struck, due = True, count + 3
            time.sleep(0.001)
        self.assertEqual(run.finish(), 0, f"{run.errors}{self.logs(run)}")
        self.assertEqual([line["step"] for line in run.metrics()], list(range(70)))
        self.assertGreater(len(disturbed), 10)
        print(f"steps of {1000 * statistics.median(quiet):.1f} ms (longest "
              f"{1000 * max(quiet):.1f}); with the coordinator's death "
              f"{1000 * statistics.median(disturbed):.1f} ms (longest "
              f"{1000 * max(disturbed):.1f}), of {len(disturbed)}")


if __name__ == "__main__":
    unittest.main()
