"""`tenuto bench slow-worker`: what counts with one slow worker, by each way to deal with it."""
import json
import subprocess
import unittest

from harness import LIMIT, TENUTO

PIPELINES, STAGES, MICROS = 3, 4, 8
LAYERS, LAYER_SECONDS = 2, 0.012  # of a stage; of a micro-batch there
KEEP_ALL = ("synchronous, the present plan", "routes", "layers", "the decision: routes and layers",
            "the worker left out")
DROP = ("backup workers, the first 2 pipelines", "sync mode backup:2", "micro-batches dropped",
        "its pipeline left out")


class SlowWorker(unittest.TestCase):
    def setUp(self):
        listed = subprocess.run([TENUTO, "bench", "list"], text=True, capture_output=True,
                                timeout=LIMIT)
        if "slow-worker" not in listed.stdout:
            self.skipTest("benchmarks are not built (TENUTO_BENCHMARKS)")

    def cases(self, *speeds):
        found = subprocess.run(
            [TENUTO, "bench", "slow-worker", "--json", "--pipelines", str(PIPELINES), "--stages",
             str(STAGES), "--micros", str(MICROS), "--steps", "500", "--speed", *map(str, speeds)],
            text=True, capture_output=True, timeout=LIMIT)
        self.assertEqual(found.returncode, 0, found.stderr)
        return json.loads(found.stdout)

    def test_remedies_keep_all_gradients_and_make_more_count(self):
        cases = self.cases(0.75, 0.5, 0.25)
        self.assertEqual([case["speed"] for case in cases], [0.75, 0.5, 0.25])
        for case in cases:
            ways = {way["way"]: way for way in case["ways"]}
            self.assertEqual(tuple(ways), KEEP_ALL + DROP)
            for name in KEEP_ALL:
                self.assertEqual(ways[name]["micros"], PIPELINES * MICROS, name)
                self.assertEqual(ways[name]["dropped"], 0, name)
            ours = ways["the decision: routes and layers"]["micros_per_second"]
            for name in KEEP_ALL[:1] + DROP:
                self.assertGreater(ours, ways[name]["micros_per_second"], (case["speed"], name))

    def test_no_way_makes_more_than_the_workers_can(self):
        can = (PIPELINES * STAGES - 1 + 0.5) / (STAGES * LAYERS * LAYER_SECONDS)
        for way in self.cases(0.5)[0]["ways"]:
            self.assertAlmostEqual(way["micros_per_second"],
                                   1000 * way["micros"] / way["update_ms"], places=6)
            self.assertLess(way["micros_per_second"], can, way)
            self.assertGreaterEqual(way["dropped"], 0)
            self.assertLess(way["dropped"], 0.5)


if __name__ == "__main__":
    unittest.main()
