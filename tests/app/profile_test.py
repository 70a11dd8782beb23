"""`tenuto profile`: from a job to a plan that trains, with real processes. No test here judges a
time: the machine may be busy."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from harness import LIMIT, TENUTO, Case, alive, another_case, busy_case


class Profile(Case):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "measured"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}

    def profile(self, *arguments, seconds=0.2):
        return subprocess.run(
            [TENUTO, "profile", str(self.job), "--out", str(self.out), "--seconds", str(seconds),
             *arguments], text=True, capture_output=True, timeout=LIMIT, env=self.environment)

    def files(self):
        return sorted(path.name for path in self.out.iterdir()) if self.out.exists() else []

    def assert_left_nothing(self):
        self.assertEqual(list(self.temporary.iterdir()), [])

    def write_text_job(self, **more):
        """A small GPT that learns from a text."""
        text = self.folder / "text.txt"
        text.write_text("".join(f"{i} times {i % 13} is {i * (i % 13)}\n" for i in range(5000)))
        self.write_job(device__kind="cpu", data__paths=[str(text)], model__layers=2,
                       model__width=32, model__heads=2, model__sequence=16,
                       parallel__micro_rows=4, **more)

    def plan(self, *arguments):
        return subprocess.run(
            [TENUTO, "plan", "--chain", str(self.out / "model.json"), "--cluster",
             str(self.out / "cluster.json"), *arguments],
            text=True, capture_output=True, timeout=LIMIT)


class FromAJobToAPlan(Profile):
    @busy_case
    def test_a_profile_is_planned_and_trained(self):
        self.need_torch()
        self.write_text_job(job__steps=4)
        done = self.profile("--layers-only", "--json", seconds=5)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said["layers"], 4)
        self.assertEqual(said["rows"], [1, 2, 4])
        # The links of workers on one host differ with its load, so their time is not limited to a
        # moment. Layers whose times differ would take all of such a time.
        done = self.profile("--links-only", "--json", seconds=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said["workers"], 4)
        self.assertTrue(said["links_measured"])
        self.assertTrue(all(ring["bytes_per_second"] > 0 for ring in said["rings"]))
        self.assertEqual(self.files(), ["cluster.json", "model.json"])
        self.assert_left_nothing()
        model = json.loads((self.out / "model.json").read_text())
        self.assertEqual([layer["name"] for layer in model["layers"]],
                         ["embedding", "block 0", "block 1", "head"])
        self.assertGreater(model["layers"][1]["forward_ms"][2], 0)
        cluster = json.loads((self.out / "cluster.json").read_text())
        self.assertEqual(cluster["devices"], 4)
        plan = self.folder / "plan.json"
        planned = self.plan("--micros", "4", "--plan", str(plan))
        self.assertEqual(planned.returncode, 0, planned.stderr)
        lines = [line for line in self.job.read_text().splitlines()
                 if line.split(" ")[0] not in ("stages", "pipelines", "micros")]
        self.job.write_text("\n".join(lines) + "\n")
        trained = subprocess.run(
            [TENUTO, "train", str(self.job), f"--parallel.plan={plan}", "--json"],
            text=True, capture_output=True, timeout=LIMIT)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertEqual(json.loads(trained.stdout)["steps"], 4)

    def test_a_paced_device_has_its_settings(self):
        self.write_job(device__clock="virtual", network__latency_ms=2.0,
                       network__megabytes_per_second=100.0)
        done = self.profile()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("virtual clock", done.stdout)
        model = json.loads((self.out / "model.json").read_text())
        total = sum(layer["forward_ms"][0] for layer in model["layers"])
        self.assertAlmostEqual(total + model["op_ms"], 4.0, delta=0.02)  # of two stages
        cluster = json.loads((self.out / "cluster.json").read_text())
        self.assertEqual(cluster["latency_ms"], [[2]])
        self.assertEqual(cluster["bandwidth_gbps"], [[0.1]])


class OneFileEach(Profile):
    def test_layers_only_and_links_only(self):
        self.assertEqual(self.profile("--layers-only").returncode, 0)
        self.assertEqual(self.files(), ["model.json"])
        (self.out / "model.json").unlink()
        self.assertEqual(self.profile("--links-only").returncode, 0)
        self.assertEqual(self.files(), ["cluster.json"])
        both = self.profile("--links-only", "--layers-only")
        self.assertEqual(both.returncode, 2)

    @another_case
    def test_real_processes_measure_emulated_links(self):
        self.write_job(device__clock="real", network__latency_ms=5.0,
                       network__megabytes_per_second=50.0)
        done = self.profile("--links-only", "--json", seconds=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["links_measured"])
        self.assertEqual(json.loads((self.out / "cluster.json").read_text())["devices"], 4)


class Refusals(Profile):
    def refused(self, done, code, *words):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stderr.strip().count("\n"), 0, done.stderr)
        self.assertEqual(self.files(), [])
        self.assert_left_nothing()

    def test_bad_input_is_one_sentence(self):
        self.refused(self.profile("--seconds=0"), 2, "--seconds")
        self.refused(self.profile("--model.layer=3"), 2, "[model] has no key layer")
        self.refused(self.profile("what"), 2, "what", "--section.key=value")
        self.write_job(device__forward_ms=[2.0, 3.0])
        self.refused(self.profile(), 2, "device.forward_ms", "--links-only")
        self.write_job(network__wire="memory")
        self.refused(self.profile(), 2, "network.wire", "'auto'")
        self.job.unlink()
        self.refused(self.profile(), 2, str(self.job))

    def test_a_worker_that_fails_is_quoted(self):
        self.need_torch()
        self.write_job(device__kind="cpu", data__paths=[str(self.folder / "none.txt")])
        self.refused(self.profile(), 1, "none.txt")
        self.write_job(device__clock="real", network__device="none7", network__latency_ms=1.0,
                       network__connect_seconds=2.0)
        self.refused(self.profile("--links-only"), 1, "none7")
        # The layers are measured, but their file would not belong to one of links.
        self.refused(self.profile(), 1, "none7")
        self.assertFalse(self.out.exists())


class Ends(Profile):
    def begin(self):
        """A profile that measures layers for a minute; it and its worker."""
        process = subprocess.Popen(
            [TENUTO, "profile", str(self.job), "--out", str(self.out), "--seconds", "60"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment)
        self.addCleanup(process.kill)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            for entry in pathlib.Path("/proc").iterdir():
                try:
                    words = (entry / "cmdline").read_bytes().decode().split("\0")
                except (OSError, UnicodeDecodeError):
                    continue
                if "profile-layers" in words and words[-2] == str(process.pid):
                    return process, int(entry.name)
            time.sleep(0.01)
        raise AssertionError("no worker was started")

    def test_a_killed_profile_leaves_no_process_and_no_file(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            process, worker = self.begin()
            process.send_signal(number)
            code = process.wait(LIMIT)
            self.assertEqual(code, -number if number == signal.SIGKILL else 128 + number)
            end = time.monotonic() + LIMIT
            while alive(worker) and time.monotonic() < end:
                time.sleep(0.01)
            self.assertFalse(alive(worker))
            self.assertEqual(self.files(), [])
            if number != signal.SIGKILL:
                continue
            for path in self.temporary.iterdir():  # what only a SIGKILL leaves behind
                self.assertTrue(path.name.startswith("tenuto-profile-"))
                subprocess.run(["rm", "-r", str(path)], check=True)
        self.assert_left_nothing()

    def test_a_worker_that_is_killed_ends_the_profile(self):
        process, worker = self.begin()
        os.kill(worker, signal.SIGKILL)
        self.assertEqual(process.wait(LIMIT), 1)
        self.assertEqual(self.files(), [])
        self.assert_left_nothing()


if __name__ == "__main__":
    unittest.main()
