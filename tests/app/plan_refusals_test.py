"""Bad models, clusters and plans: each ends a command with one sentence, and nothing is written."""
import json
import subprocess
import unittest

from harness import TENUTO, Case

LIMIT = 60
LAYERS = "1 2 1000000 8000000 first\n1 2 1000000 8000000 second\n"
NODE = (" -- A -- forward_compute_time={}, backward_compute_time=1, activation_size=1, "
        "parameter_size=1\n")
PAIR = "[[0, 1], [1, 0]]"


def cluster(matrix=PAIR, devices=2, **more):
    keys = "".join(f', "{key}": {value}' for key, value in more.items())
    return f'{{"devices": {devices}, "bandwidth_gbps": {matrix}{keys}}}'


WIDE = {"name": "wide", "forward_ms": [4], "backward_input_ms": [4], "backward_weight_ms": [4],
        "activation_bytes": 1000, "stash_bytes": 4000, "parameter_bytes": 10000,
        "optimizer_bytes": 70000}


def model(optimizer):
    layer = {**WIDE, "optimizer_bytes": optimizer}
    layer.update({key: [1, 4] for key in layer if key.endswith("_ms")})
    return json.dumps({"rows": [1, 4], "layers": [layer, {**layer, "name": "last"}]})


BEFORE = {
    "two.chain": LAYERS,
    "three.chain": LAYERS + "1 2 100 100 third\n",
    "pair.json": cluster(memory_bytes=1e9),
    "one.json": cluster("[[0]]", 1),
}
READ = ("--chain", "in/two.chain", "--cluster", "in/pair.json")
NO_CLUSTER = "matrix of 2 rows, one for each device, found a list of "

# Files that `tenuto plan` refuses with exit code 2: the name, the content, the sentence.
MODELS = [
    ("nan.chain", "1 2 nan 4 b\n", "in/nan.chain:1:5: expected activation_bytes, bytes from 0 to "
     "9007199254740992, found 'nan'"),
    ("negative.chain", "1 -2 3 4 b\n", "in/negative.chain:1:3: expected backward_ms, milliseconds "
     "from 0 to 2305843009213.694, found '-2'"),
    ("empty.chain", "", "in/empty.chain: expected a layer on each line, 'forward_ms backward_ms "
     "activation_bytes parameter_bytes name', found none"),
    ("short.chain", "1 2 3\n", "in/short.chain:1:1: expected 'forward_ms backward_ms "
     "activation_bytes parameter_bytes name', found 3 of these 5 fields"),
    ("idle.chain", "0 0 3 4 b\n", "in/idle.chain: expected a layer that takes time, found forward "
     "and backward times of 0 ms in every layer"),
    ("cycle.graph", "a" + NODE.format(1) + "b" + NODE.format(1) + "a -- b\nb -- a\n",
     "in/cycle.graph: expected a graph without cycles, found a -> b -> a; remove one of these "
     "edges"),
    ("apart.graph", "a" + NODE.format(1) + "b" + NODE.format(1),
     "in/apart.graph: expected a connected graph, found no way of edges between a and b; add the "
     "edge that is missing"),
    ("nan.graph", "a" + NODE.format("nan"), "in/nan.graph:1:11: expected forward_compute_time= "
     "with a number from 0 to 2305843009213.694, found 'forward_compute_time=nan'"),
    ("cut.json", '{"rows": [1', "in/cut.json:1:12: expected a model as JSON, found text that is "
     "not JSON (is the file cut off, or is a number written in another form?)"),
]
CLUSTERS = [
    ("empty", "", "in/empty: expected a cluster as JSON, found an empty file"),
    ("no-devices", "{}", "in/no-devices: the key devices is missing; expected devices, "
     "bandwidth_gbps, memory_bytes, speed, latency_ms, place, duplex, ports"),
    ("none", cluster("[]", 0), "in/none: devices: expected a whole number from 1 to 16384, found "
     "0"),
    ("ragged", cluster("[[0, 1], [1]]"), "in/ragged: bandwidth_gbps[1]: expected a list of 2 "
     "numbers, one for each device, found a list of 1"),
    ("flat", cluster("[[0, 1]]"), "in/flat: bandwidth_gbps: expected a " + NO_CLUSTER + "1"),
    ("large", cluster("[[0, 1, 1], [1, 0, 1], [1, 1, 0]]"),
     "in/large: bandwidth_gbps: expected a " + NO_CLUSTER + "3"),
    ("negative", cluster("[[0, -1], [1, 0]]"), "in/negative: bandwidth_gbps[0][1]: expected a "
     "number from 1e-09 to 1e+06 (gigabytes per second), found -1"),
    ("apart", cluster("[[0, 0], [0, 0]]"), "in/apart: bandwidth_gbps[0][1]: expected a number from "
     "1e-09 to 1e+06 (gigabytes per second; every two devices need a connection), found 0"),
    ("nan", cluster("NaN"), "in/nan:1:34: expected a cluster as JSON, found text that is not "
     "JSON (is the file cut off, or is a number written in another form?)"),
    ("memory", cluster(memory_bytes="[1e9, -1]"), "in/memory: memory_bytes[1]: expected a number "
     "from 1 to 9007199254740992 (bytes), found -1"),
]
# Models that do not fit: what is too large, the model, the cluster, the flags, the sentence. Then
# calls that fit, as the sentence promises: the cluster and the flags of each.
NEAREST = ("no layout fits into memory, not even with stages that run their forwards again before "
           "their backwards: in the layout that lacks least, ")
LARGE = ("layer 0 (wide) alone keeps 80000 bytes of weights, gradients and optimizer state, {} "
         "more than the memory of device 0, which has the most; a layer cannot be divided; ")
UNFIT = [
    ("a layer that no device has memory for", model(70000), cluster(memory_bytes=27e3),
     ("--micros", 8), NEAREST + "stage 0 of 2 (layer 0 on 1 device) needs 69000 bytes more than "
     "device 0 has; " + LARGE.format(53000) + "it would fit with 96000 bytes (93.75 KiB) of memory "
     "on each device",
     [(cluster(memory_bytes=96e3), ("--micros", 8))]),
    ("micro-batches that are too large", model(70000), cluster(memory_bytes=95e3), ("--micros", 8),
     NEAREST + "stage 0 of 2 (layer 0 on 1 device) needs 1000 bytes more than device 0 has; it "
     "would fit with 96000 bytes (93.75 KiB) of memory on each device, with micro-batches of at "
     "most 3 rows (--micro-rows), with 2 more devices like device 0, or with an optimizer that "
     "keeps, with the gradients, at most 6.90 bytes for each byte of weights (now 7.00)",
     [(cluster(memory_bytes=96e3), ("--micros", 8)),
      (cluster(memory_bytes=95e3), ("--micros", 8, "--micro-rows", 3)),
      (cluster('{"inside": 1, "between": 1, "per_node": 4}', 4, memory_bytes=95e3),
       ("--micros", 8))]),
    ("every number of rows", model(70000), cluster(memory_bytes=27e3), ("--rows", 8),
     "with micro-batches of 1 row (the smallest of the 3 sizes that were tried), " + NEAREST +
     "stage 0 of 2 (layer 0 on 1 device) needs 57000 bytes more than device 0 has; " +
     LARGE.format(53000) + "it would fit with 84000 bytes (82.03 KiB) of memory on each device, or "
     "with an optimizer that keeps, with the gradients, at most 1.30 bytes for each byte of "
     "weights (now 7.00)",
     [(cluster(memory_bytes=84e3), ("--micros", 8, "--micro-rows", 1))]),
    ("another planner", model(70000), cluster(memory_bytes=90e3),
     ("--micros", 8, "--micro-rows", 2, "--planner", "data-parallel"),
     "no layout of planner data-parallel fits into memory: stage 0 of 1 (layers 0 to 1 on 2 "
     "devices) needs 78000 bytes more than device 0 has; planner tenuto finds a layout that fits",
     [(cluster(memory_bytes=90e3), ("--micros", 8, "--micro-rows", 2))]),
    ("whole micro-batches", json.dumps({"rows": [4], "layers": [WIDE]}),
     cluster(memory_bytes=90e3), ("--micros", 8, "--plan", "p"),
     "no plan whose replicas take whole micro-batches in turn fits into memory, although a "
     "layout that splits rows does: in the one that lacks least, stage 0 of 1 (layer 0 on 2 "
     "devices) needs 6000 bytes more than device 1 has; it would fit with 96000 bytes (93.75 KiB) "
     "of memory on each device, with micro-batches of at most 2 rows (--micro-rows), or with an "
     "optimizer that keeps, with the gradients, at most 6.40 bytes for each byte of weights (now "
     "7.00)",
     [(cluster(memory_bytes=90e3), ("--micros", 8)),
      (cluster(memory_bytes=90e3), ("--micros", 8, "--micro-rows", 2, "--plan", "/dev/null"))]),
]
ALL_FILES = ("--plan", "p", "--html", "h", "--out", "o", "--to", "torch", "t")
OWN = "{} the same file; give another name"
# More flags of `tenuto plan`, the exit code, the sentence.
OUTPUTS = [
    (("--plan", "none/p", "--out", "o"), 1, "cannot write none/p: No such file or directory"),
    (("--plan", "p", "--out", "in"), 1, "cannot write in: Is a directory"),
    (("--plan", "p", "--to", "torch", "in/two.chain"), 1,
     "cannot make the folder in/two.chain: Not a directory"),
    (("--plan", "p", "--to", "torch", "new/in/two.chain", "--out", "/dev/full"), 1,
     "cannot write /dev/full: No space left on device; free some space there and run the command "
     "again"),
    (("--plan", "p", "--out", "./p"), 2, "--out ./p: " + OWN.format("--plan writes")),
    (("--plan", "p", "--html", "p"), 2, "--html p: " + OWN.format("--plan writes")),
    (("--plan", "in/two.chain"), 2, "--plan in/two.chain: " + OWN.format("--chain reads")),
    (("--out", "in/../in/pair.json"), 2,
     "--out in/../in/pair.json: " + OWN.format("--cluster reads")),
    (("--plan", "t/plan.json", "--to", "torch", "t"), 2,
     "--to torch t/plan.json: " + OWN.format("--plan writes")),
]
# Plan files of `tenuto train`: the name, what is changed in a plan, the exit code, the sentence.
PLANS = [
    ("none.json", None, 2, "cannot read in/none.json: No such file or directory"),
    ("other.json", lambda plan: {}, 2,
     "in/other.json: order is missing; expected a plan, as tenuto plan --plan writes it"),
    ("negative.json", lambda plan: {**plan, "stages": [{**plan["stages"][0], "layer_end": -3}]}, 2,
     "in/negative.json: stages[0].layer_end: expected a whole number from 0 to 16384000, found -3"),
    ("holders.json",
     lambda plan: {**plan, "stages": [{**plan["stages"][0], "holders": [0, 1, 2]},
                                      plan["stages"][1]]}, 3,
     "in/holders.json is refused: stage 0 must name different workers of 0 to 1 as its holders: "
     "it names worker 2"),
    ("twice.json",
     lambda plan: {**plan, "stages": [{**plan["stages"][0], "holders": [0, 0]},
                                      plan["stages"][1]]}, 3,
     "in/twice.json is refused: stage 0 must name different workers of 0 to 1 as its holders: "
     "it names worker 0 twice"),
    ("model.json", lambda plan: plan, 3,
     "in/model.json is the plan of a model with 2 layers, but the job's model has 4 (embedding, "
     "blocks and head): make a plan for this model"),
]


class PlanRefusals(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "in").mkdir()
        for name, text in BEFORE.items():
            self.write(name, text)

    def write(self, name, text):
        (self.folder / "in" / name).write_text(text)

    def tenuto(self, *arguments):
        return subprocess.run([TENUTO, *map(str, arguments)], capture_output=True, text=True,
                              cwd=self.folder, stdin=subprocess.DEVNULL, timeout=LIMIT)

    def content(self):
        return {str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else None
                for path in self.folder.rglob("*")}

    def refused(self, code, sentence, *arguments):
        before = self.content()
        told = self.tenuto(*arguments)
        with self.subTest(arguments):
            self.assertEqual((told.returncode, told.stdout, told.stderr),
                             (code, "", sentence + "\n"))
            self.assertEqual(self.content(), before, "something was written")

    def test_models(self):
        for name, text, sentence in MODELS:
            self.write(name, text)
            self.refused(2, "tenuto plan: " + sentence, "plan", "--chain", "in/" + name,
                         "--cluster", "in/pair.json", *ALL_FILES)

    def test_clusters(self):
        for name, text, sentence in CLUSTERS:
            self.write(name, text)
            self.refused(2, "tenuto plan: " + sentence, "plan", "--chain", "in/two.chain",
                         "--cluster", "in/" + name, *ALL_FILES)

    def test_models_that_fit_nowhere(self):
        for name, text, devices, flags, sentence, fitting in UNFIT:
            self.write("model", text)
            self.write("devices", devices)
            read = ("plan", "--model", "in/model", "--cluster", "in/devices")
            self.refused(3, "tenuto plan: " + sentence, *read, *flags, "--out", "o")
            for other, changed in fitting:
                self.write("devices", other)
                told = self.tenuto(*read, *changed)
                self.assertEqual(told.returncode, 0, f"{name}, {changed}: {told.stderr}")

    def test_outputs(self):
        (self.folder / "in" / "full").mkdir()
        for flags, code, sentence in OUTPUTS:
            self.refused(code, "tenuto plan: " + sentence, "plan", *READ, *flags)
        self.refused(1, "tenuto profile: cannot make the folder in/two.chain: Not a directory",
                     "profile", self.job, "--out", "in/two.chain")

    def test_flags(self):
        sentence = ("tenuto: --seconds: expected a number from {} to 1e+06, found '{}'; tenuto {} "
                    "--help lists what is possible")
        for value in ("0", "-1", "nan"):
            self.refused(2, sentence.format("1e-06", value, "plan"), "plan", *READ, "--plan", "p",
                         "--seconds", value)
            self.refused(2, sentence.format("0.1", value, "profile"), "profile", self.job, "--out",
                         "measured", "--seconds", value)

    def test_plans(self):
        made = self.tenuto("plan", *READ, "--micros", 4, "--plan", "in/plan")
        self.assertEqual(made.returncode, 0, made.stderr)
        plan = json.loads((self.folder / "in" / "plan").read_text())
        price = ("simulate", "in/plan", "--page", "p.html", "--chain")
        self.refused(2, "tenuto simulate: in/three.chain has 3 layers and in/plan 2: give the "
                     "layers that the plan was made for", *price, "in/three.chain", "--cluster",
                     "in/pair.json")
        self.refused(2, "tenuto simulate: in/one.json has 1 device and in/plan 2 workers: give the "
                     "devices that the plan was made for", *price, "in/two.chain", "--cluster",
                     "in/one.json")
        self.job.write_text("[model]\nkind = \"gpt\"\nlayers = 2\n[data]\npaths = [\"in\"]\n")
        self.refused(2, "tenuto schedule: stage 0 has 3 holders for 1 micro-batch: a holder "
                     "without a micro-batch does nothing; ask for more micro-batches or fewer "
                     "holders",
                     "schedule", "convert", "--holders", 3, "--layers", 2, "--micros", 1, "--to",
                     "json", "--out", "o")
        for name, change, code, sentence in PLANS:
            if change:
                self.write(name, json.dumps(change(plan)))
            self.refused(code, "tenuto: " + sentence, "train", self.job,
                         f"--parallel.plan=in/{name}")


if __name__ == "__main__":
    unittest.main()
