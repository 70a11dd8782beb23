"""The tools of the program as functions of the Python package, without torch."""
import base64
import contextlib
import html
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
TENUTO = os.environ["TENUTO"]
# The source of the package finds the program there.
os.environ["PATH"] = f"{os.path.dirname(TENUTO)}:{os.environ['PATH']}"
sys.path.insert(0, str(ROOT / "python"))

import tenuto  # noqa: E402

LOADED_BY_IMPORT = set(sys.modules)
PLANNER = ROOT / "examples" / "planner"


class Tools(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tenuto-tools-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def page_of(self, result):
        """The page in the frame that a notebook shows."""
        frame = result._repr_html_()
        found = re.fullmatch(
            r'<iframe [^>]*sandbox="allow-scripts"[^>]* srcdoc="([^"]*)"></iframe>', frame)
        self.assertIsNotNone(found, frame[:300])
        page = html.unescape(found[1])
        self.assertTrue(page.startswith("<!doctype html>"), page[:100])
        return page

    def picture_of(self, result):
        """The root of the SVG that a notebook shows."""
        image = result._repr_html_()
        found = re.fullmatch(r'<img [^>]*src="data:image/svg\+xml;base64,([^"]*)">', image)
        self.assertIsNotNone(found, image[:300])
        root = xml.fromstring(base64.b64decode(found[1]))
        self.assertTrue(root.tag.endswith("svg"))
        return root

    def test_simulate(self):
        healthy = tenuto.simulate(stages=4, micros=12)
        slow = tenuto.simulate(stages=4, micros=12, slow_link={0: 20}, gantt=True, memory=None)
        self.assertEqual(healthy["makespan_ms"], 450.0)
        self.assertGreater(slow["makespan_ms"], 450.0)
        self.assertEqual(slow["order"], "1f1b")
        self.assertEqual(len(slow), len(dict(slow)))
        self.assertIn(f"makespan    {slow['makespan_ms']:.0f} ms", slow.text)
        self.assertIn("w0 s0 |FFFF", slow.text)
        self.assertNotIn("w0 s0 |FFFF", str(healthy))
        self.assertIn("--slow-link=0:20 --gantt: makespan_ms, ", repr(slow))
        self.assertIn("<title>Tenuto: 1f1b</title>", self.page_of(slow))
        same = tenuto.simulate(stages="4", micros=12, slow_link="0:20", forward_ms=[10] * 4)
        self.assertEqual(same["makespan_ms"], slow["makespan_ms"])

    def test_results_write_their_files_once(self):
        """Text and picture are made in the folder of the call, and write nothing there."""
        (self.folder / "own").mkdir()
        os.chdir("own")
        order = tenuto.schedule(order="zb-h1", stages=2, micros=2, action="convert", to="text",
                                out="order.sched")
        written = pathlib.Path("order.sched")
        text = written.read_text()
        priced = tenuto.simulate("order.sched", trace="trace.json", page="page.html")
        self.assertEqual({"order.sched", "trace.json", "page.html"}, set(os.listdir()))
        for name in ("trace.json", "page.html"):
            os.unlink(name)
        os.chdir(self.folder)
        self.assertIn("makespan", priced.text)
        self.page_of(priced)
        self.assertIn(text, order.text)
        self.assertEqual(os.listdir("own"), ["order.sched"])

    def test_plan(self):
        found = tenuto.plan(chain=PLANNER / "gpt.chain", cluster=PLANNER / "two-nodes.json",
                            micros=16, to=("torch", self.folder / "torch"))
        self.assertTrue((self.folder / "torch" / "schedule.csv").is_file())
        self.assertEqual(found["stages"][0]["first_layer"], 0)
        self.assertGreaterEqual(found["makespan_ms"], found["lower_bound_ms"])
        self.assertIn("stage", found.text)
        self.page_of(found)

    def test_schedule(self):
        shown = tenuto.schedule(order="zb-h1", stages=2, micros=3, split_backward=True)
        self.assertIn("w0: F0.0", shown["schedule"])
        self.assertIn(shown["schedule"].strip(), shown.text)
        self.page_of(shown)
        names = {one["name"] for one in tenuto.schedule(action="list")["orders"]}
        self.assertIn("zb-h1", names)
        file = self.folder / "own.sched"
        file.write_text(shown["schedule"])
        self.assertTrue(tenuto.schedule(file, action="check")["ok"])
        file.write_text("stages 2 micros 1\nw0: F0.0\nw1: F1.0 B1.0\n")
        wrong = tenuto.schedule(file, action="check")
        self.assertFalse(wrong["ok"])
        self.assertIn("no worker runs B0.0", wrong["reason"])
        self.assertIn("no worker runs B0.0", wrong.text)
        self.assertEqual(wrong._repr_html_(), f"<pre>{html.escape(wrong.text)}</pre>")
        with self.assertRaisesRegex(ValueError, "no worker runs B0.0"):
            tenuto.schedule(file)

    def test_collective(self):
        shown = tenuto.collective(algorithm="late-one", members=5, late=[4])
        self.assertEqual((shown["algorithm"], shown["members"]), ("late-one", 5))
        self.picture_of(shown)
        ring, late = (tenuto.collective(action="price", late={3: 20}, algorithm=name)
                      for name in ("ring", "late-one"))
        self.assertLess(late["finish_ms"], ring["finish_ms"])
        self.assertEqual(late._repr_html_(), f"<pre>{html.escape(late.text)}</pre>")

    def test_analyze(self):
        tenuto.simulate(stages=4, micros=12, slow_worker={"0.1": 0.5}, trace="steps.json")
        found = tenuto.analyze("steps.json")
        self.assertEqual(found["suspects"][0]["worker"], 1)
        self.assertIn(found["verdict"], found.text)
        self.picture_of(found)

    def test_days_have_a_picture_and_sync_modes_a_text(self):
        self.picture_of(tenuto.simulate(days=1, stages=2, pipelines=2))
        modes = tenuto.simulate(sync="synchronous", replicas=2, seconds=5)
        self.assertTrue(modes._repr_html_().startswith("<pre>"))

    def test_refusals(self):
        for call, words in (
                (lambda: tenuto.simulate(slow_link={99: 3}), "--slow-link 99:3: 4 stages have 3"),
                (lambda: tenuto.simulate(fast_link=3), "there is no flag or argument"),
                (lambda: tenuto.plan(), "--cluster"),
                (lambda: tenuto.collective(action="draw"), "'draw': expected one of show, "),
                (lambda: tenuto.schedule(order="none"), "none"),
                (lambda: tenuto.analyze("nowhere"), "there is no run at nowhere")):
            with self.assertRaisesRegex(ValueError, words) as caught:
                call()
            self.assertNotIn("Usage", str(caught.exception))
        with self.assertRaisesRegex(RuntimeError, "cannot|No such|not a"):
            tenuto.simulate(page="nowhere/page.html")

    def test_without_the_program(self):
        self.addCleanup(os.environ.__setitem__, "PATH", os.environ["PATH"])
        os.environ["PATH"] = str(self.folder)
        with self.assertRaisesRegex(RuntimeError, "the program tenuto is not at .* in the PATH: "):
            tenuto.simulate()

    def test_no_torch_is_loaded(self):
        self.assertNotIn("tenuto._tools", LOADED_BY_IMPORT)
        tenuto.schedule(action="list")
        self.assertEqual([name for name in ("tenuto._extension", "torch") if name in sys.modules],
                         [])

    def test_switches_are_those_of_the_program(self):
        """A flag without a value that the package does not know would be given one."""
        from tenuto import _tools

        found = set()
        for command in ("simulate", "plan", "analyze", "schedule show", "schedule check",
                        "schedule convert", "schedule list", "collective show",
                        "collective check", "collective price", "collective list"):
            told = subprocess.run([TENUTO, *command.split(), "--help"], capture_output=True,
                                  text=True, check=True).stdout
            for names, value in re.findall(r"^  (-[-\w,]+)(?: ([A-Z]+)\b)?", told, re.MULTILINE):
                if not value:
                    found.add(names.split("--")[-1].replace("-", "_"))
        self.assertEqual(found - {"help", "json"}, set(_tools._SWITCHES))

    def test_the_document(self):
        """The code of docs/notebooks.md runs as it stands."""
        (self.folder / "examples").symlink_to(ROOT / "examples")
        text = (ROOT / "docs" / "notebooks.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 2)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            for block in blocks:
                exec(block, {"tenuto": tenuto})  # noqa: S102
        self.assertIn("ms, with a slow link", printed.getvalue())
        self.assertIn("The cause is worker 1", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
