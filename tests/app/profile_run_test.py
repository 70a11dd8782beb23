"""Runs on paced devices that follow a model file and a cluster file: what `tenuto plan` promises,
`tenuto simulate` prices and real processes keep on the virtual clock is one number."""
import json
import subprocess
import unittest

from harness import Case, LIMIT, TENUTO


def layer(name, forward, activation, parameters):
    """A layer whose times grow less than its rows."""
    times = [forward * share for share in (0.4, 0.6, 1)]
    return {"name": name, "forward_ms": times, "backward_input_ms": times,
            "backward_weight_ms": [1.1 * time for time in times], "update_ms": 0.2,
            "activation_bytes": activation, "stash_bytes": activation,
            "parameter_bytes": parameters, "optimizer_bytes": 2 * parameters}


# A large embedding and a large head around small blocks.
MODEL = {"name": "unequal", "rows": [1, 2, 4], "op_ms": 0.25,
         "layers": [layer("embedding", 4, 50_000, 400_000),
                    *(layer(f"block {i}", 3, 50_000, 40_000) for i in range(5)),
                    layer("head", 9, 0, 800_000)]}
# Two speeds, three classes of links, devices in no order; the last device is idle or in a plan.
CLUSTER = {"devices": 5, "place": [2, 0, 1, 0, 2], "speed": [1, 0.5, 1, 0.5, 1],
           "bandwidth_gbps": [[1, 0.1, 0.05], [0.1, 1, 0.1], [0.05, 0.1, 1]],
           "latency_ms": [[0.2, 0.5, 1], [0.5, 0.2, 0.5], [1, 0.5, 0.2]]}


class ProfileRuns(Case):
    def write(self, name, tree):
        path = self.folder / name
        path.write_text(json.dumps(tree, indent=1))
        return str(path)

    def write_profile_job(self, device=None, network=None, **parallel):
        sections = {"job": {"name": "small", "steps": 12, "directory": str(self.folder / "runs"),
                            "checkpoint_every": 0, "validate_every": 0, "validate_micros": 2},
                    "parallel": parallel,
                    "device": {"kind": "paced", "profile": self.write("model.json", MODEL),
                               **(device or {})},
                    "network": {"connect_seconds": 60.0,
                                "cluster": self.write("cluster.json", CLUSTER), **(network or {})},
                    "resilience": {"silence_seconds": 30.0}}
        self.job.write_text("".join(
            f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
            for name, keys in sections.items()))

    def ask_json(self, *words):
        found = subprocess.run([TENUTO, *map(str, words), "--json"], text=True, capture_output=True,
                               timeout=LIMIT)
        self.assertEqual(found.returncode, 0, found.stderr)
        return json.loads(found.stdout)

    def make_plan(self):
        path = self.folder / "plan.json"
        report = self.ask_json("plan", "--chain", self.write("model.json", MODEL), "--cluster",
                               self.write("cluster.json", CLUSTER), "--micros", 8, "--plan", path)
        return path, report["plan"]


class AsPromised(ProfileRuns):
    def in_turn(self):
        """The price of one step among many."""
        return self.ask_json("simulate", self.job, "--optimizer", "in-turn")["period_ms"]

    def assert_keeps(self, price):
        """Trains; steps on the virtual clock last as long as the price, unless the machine is too
        busy."""
        run = self.train()
        metrics = run.metrics()
        self.assertEqual(len(metrics), 12)
        off = min(abs(step["period_ms"] / price - 1) for step in metrics[4:-1])
        if not metrics[-1]["lag_valid"] and off > 0.01:
            self.skipTest("the machine is too busy to keep the clock")
        self.assertLess(off, 0.01, (price, [step.get("period_ms") for step in metrics]))

    def test_a_plan_of_the_same_files(self):
        path, plan = self.make_plan()
        self.write_profile_job(plan=str(path))
        again = self.ask_json("simulate", self.job)
        self.assertAlmostEqual(again["makespan_ms"], plan["makespan_ms"], places=6)
        self.assert_keeps(self.in_turn())

    def test_an_order_on_equal_numbers_of_layers(self):
        self.write_profile_job(stages=2, pipelines=2, micros=4)
        self.assert_keeps(self.in_turn())

    def test_workers_have_what_the_coordinator_read(self):
        self.write_profile_job(stages=2, pipelines=2, micros=4)
        run = self.train("--job.steps=2")
        text = (run.folder / "config.toml").read_text()
        self.assertIn("profile_content = \"{\\\"name\\\":\\\"unequal\\\"", text)
        # The effective settings are a job while the files are the same.
        self.job = run.folder / "config.toml"
        self.assertEqual(self.losses(self.train(name="again")), self.losses(run))


class Refused(ProfileRuns):
    def refusal(self, *arguments):
        found = subprocess.run([TENUTO, "train", str(self.job), *arguments], text=True,
                               capture_output=True, timeout=LIMIT)
        self.assertIn(found.returncode, (2, 3))
        self.assertFalse((self.folder / "runs").exists())
        return found.stderr

    def test_what_does_not_fit_is_refused_in_a_sentence(self):
        plain = {"stages": 2, "pipelines": 2, "micros": 4}
        for settings, sentence in (
                ({"device": {"forward_ms": [2.0]}},
                 "device.forward_ms is given, and"),
                ({"device": {"message_bytes": 128}}, "device.message_bytes is given, and"),
                ({"network": {"latency_ms": 2.0}}, "network.latency_ms is given, and"),
                ({"network": {"cluster": "no.json"}}, "no.json"),
                ({"device": {"kind": "cpu"}},
                 "device.profile rehearses a model, which only device.kind = \"paced\" does"),
                ({"stages": 8}, "parallel.stages 8 is more than the 7 layers of"),
                ({"pipelines": 3}, "5 devices in"),
                ({"device": {"profile_content": "{}"}},
                 "device.profile_content is not the content")):
            with self.subTest(sentence=sentence):
                self.write_profile_job(**{**plain, **settings})
                self.assertIn(sentence, self.refusal("--data.paths=/etc/hostname"))
        self.write_profile_job(**plain)
        self.assertIn("forward_ms: expected a list of 3 numbers",
                      self.refusal(f"--device.profile={self.broken_model()}"))

    def broken_model(self):
        broken = json.loads(json.dumps(MODEL))
        broken["layers"][2]["forward_ms"] = [1, 2]
        return self.write("broken.json", broken)

    def test_a_plan_of_another_model_is_refused(self):
        path, _ = self.make_plan()
        self.write_profile_job(plan=str(path))
        other = {**MODEL, "layers": MODEL["layers"][1:]}
        self.assertIn("is the plan of a model with 7 layers",
                      self.refusal(f"--device.profile={self.write('other.json', other)}"))


if __name__ == "__main__":
    unittest.main()
