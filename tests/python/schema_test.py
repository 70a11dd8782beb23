"""Plans as JSON hold what docs/plan.schema.json promises, and the reader refuses the rest."""
import copy
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from validate import faults

TENUTO = os.environ["TENUTO"]
SCHEMA = json.loads((pathlib.Path(__file__).parents[2] / "docs/plan.schema.json").read_text())


def tenuto(*arguments):
    return subprocess.run([TENUTO, *map(str, arguments)], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=60)


def plan_of(*arguments):
    made = tenuto("schedule", "convert", "--to", "json", *arguments)
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)


class Schema(unittest.TestCase):
    def test_written_plans_conform(self):
        orders = json.loads(tenuto("schedule", "list", "--json").stdout)["orders"]
        self.assertGreater(len(orders), 2)
        for order in orders:
            for more in ((), ("--pipelines", 2, "--dispatch", "ready")):
                shape = ("--stages", 2, "--micros", 4, *more)
                plan = plan_of("--order", order["name"], *shape)
                self.assertEqual(faults(plan, SCHEMA), [], order["name"])

    def test_a_csv_as_plan_conforms(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "given.csv"
            path.write_text("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n")
            self.assertEqual(faults(plan_of(path), SCHEMA), [])

    def test_broken_plans_do_not_conform_and_are_refused(self):
        right = plan_of("--stages", 2, "--micros", 2, "--pipelines", 2)

        def broken(change):
            plan = copy.deepcopy(right)
            change(plan)
            return plan

        cases = {
            "missing": broken(lambda p: p.pop("limits")),
            "unknown": broken(lambda p: p.update(more=1)),
            "word": broken(lambda p: p.update(dispatch="both")),
            "type": broken(lambda p: p.update(split_backward=1)),
            "recompute": broken(lambda p: p["stages"][0].update(recompute=1)),
            "negative": broken(lambda p: p["stages"][0].update(layer_first=-1)),
            "fraction": broken(lambda p: p["stages"][0].update(layer_end=1.5)),
            "deep": broken(lambda p: p["schedule"]["groups"][0].pop("collective")),
            "token": broken(lambda p: p["schedule"]["lists"].__setitem__(0, "F0.0 X1.2")),
            "blanks": broken(lambda p: p["schedule"]["lists"].__setitem__(0, "F0.0  B0.0")),
            "end": broken(lambda p: p["schedule"]["lists"].__setitem__(0, "F0.0 ")),
            "move": broken(lambda p: p["schedule"]["collectives"][0]["rounds"].append("0>1")),
        }
        with tempfile.TemporaryDirectory() as folder:
            for name, plan in cases.items():
                self.assertNotEqual(faults(plan, SCHEMA), [], name)
                path = pathlib.Path(folder) / f"{name}.json"
                path.write_text(json.dumps(plan))
                told = tenuto("schedule", "check", path)
                self.assertEqual(told.returncode, 2, f"{name}: {told.stdout}{told.stderr}")
                self.assertIn(str(path), told.stderr)


if __name__ == "__main__":
    unittest.main()
