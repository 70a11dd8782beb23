"""tenuto analyze: the published result of a recorded run, and files that are no traces."""
import gzip
import json
import os
import pathlib
import subprocess
import unittest

from harness import Case, LIMIT, TENUTO

DATA = pathlib.Path(os.environ.get("TENUTO_DATA") or
                    pathlib.Path(__file__).resolve().parents[2] / ".." / "shared" / "data")
TRACE = DATA / "traces" / "timeline-AR.json.gz"
WITHIN = 0.02  # of the published figures


def tenuto(*arguments):
    return subprocess.run([TENUTO, *map(str, arguments)], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=LIMIT)


def step(slow=1):
    """One step of two stages with two micro-batches; the forwards of stage 1 take `slow` times 10
    ms, those of stage 0 take 10 ms, backwards 20 ms."""
    events, end = [], 0
    for micro in range(2):
        for stage, name, lasts in ((0, "F", 10), (1, "F", 10 * slow), (1, "B", 20), (0, "B", 20)):
            events.append({"ph": "X", "name": f"PP:{stage}{name}{micro}", "pid": stage, "tid": 0,
                           "ts": end * 1000, "dur": lasts * 1000})
            end += lasts
    return {"traceEvents": events}


class Analyze(Case):
    def analyzed(self, *arguments):
        told = tenuto("analyze", *arguments, "--json")
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(told.stderr, "")
        return json.loads(told.stdout)

    def refused(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        told = tenuto("analyze", path)
        self.assertEqual(told.returncode, 2, told.stderr)
        self.assertEqual(told.stdout, "")
        self.assertEqual(len(told.stderr.splitlines()), 1, told.stderr)
        self.assertIn(str(path), told.stderr)
        return told.stderr

    @unittest.skipUnless(TRACE.exists(), f"{TRACE} is not there: set TENUTO_DATA")
    def test_the_published_result(self):
        found = self.analyzed(TRACE)
        result = json.loads((TRACE.parent / "result-AR.json").read_text())

        def near(number, expected, what):
            self.assertLess(abs(number / expected - 1), WITHIN, f"{what}: {number}, {expected}")

        near(found["slowdown"], result["blocking_slowdown"], "slowdown")
        near(found["balanced_ms"] / 1000, result["step_t_noblk"]["16"], "balanced step")
        steps = result["step_t_nodelay"].values()
        near(found["replayed_ms"] / 1000, sum(steps) / len(steps), "replayed step")
        steps = result["step_t_base"].values()
        near(found["recorded_ms"] / 1000, sum(steps) / len(steps), "recorded step")
        for field, name, published in (("by_pipeline", "pipeline", "dp_rank"),
                                       ("by_stage", "stage", "stage"),
                                       ("by_operation", "operation", "optype")):
            parts = {str(part[name]): part["slowdown"] for part in found[field]}
            expected = result[f"blocking_decompose_by_{published}"]
            self.assertEqual(set(parts), set(expected))
            for part, slowdown in expected.items():
                near(parts[part], slowdown, f"{field} {part}")
        # The published result without its slowest worker.
        slowest = json.loads((TRACE.parent / "mw-AR.json").read_text())
        worker = max(found["by_worker"], key=lambda part: part["slowdown"])
        near(worker["recovered"], slowest["Mw"], "recovered")
        self.assertEqual([one["kind"] for one in found["suspects"]], ["worker"], found["verdict"])
        self.assertEqual(found["suspects"][0]["worker"], 0)
        self.assertIn("worker 0 (pipeline 0, stage 0)", found["verdict"])
        self.assertTrue(found["remedies"])
        self.assertEqual(len(found["by_link"]), 12)

    def test_text_picture_and_packed_file(self):
        plain, packed = self.folder / "trace.json", self.folder / "trace.json.gz"
        plain.write_text(json.dumps(step(slow=3)))
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        self.assertEqual(self.analyzed(plain), self.analyzed(packed))
        picture = self.folder / "heat.svg"
        told = tenuto("analyze", packed, "--picture", picture)
        self.assertEqual(told.returncode, 0, told.stderr)
        for word in ("slowdown", "pipeline 0", "by operation", "by worker"):
            self.assertIn(word, told.stdout)
        self.assertTrue(picture.read_text().startswith("<svg "))
        # Several files, one a step.
        folder = self.folder / "steps"
        folder.mkdir()
        for number in (3, 5):
            (folder / f"trace-{number}.json").write_text(json.dumps(step()))
        self.assertEqual(self.analyzed(folder)["steps"], 2)

    def test_files_that_are_no_traces(self):
        text = json.dumps(step()).encode()
        packed = gzip.compress(text)
        self.assertIn("cut off", self.refused("cut.json.gz", packed[:len(packed) // 2]))
        damaged = bytearray(packed)
        damaged[len(packed) // 2] ^= 255
        self.refused("damaged.json.gz", bytes(damaged))
        self.assertIn("cut off", self.refused("cut.json", text[:len(text) // 2]))
        self.assertIn("cut off", self.refused("empty.json", b""))
        self.assertIn("without events", self.refused("none.json", b'{"traceEvents": []}'))
        foreign = [{"ph": "X", "name": "layout", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]
        told = self.refused("foreign.json", json.dumps(foreign).encode())
        self.assertIn("'layout'", told)
        self.assertIn("another tool", told)
        backwards = step()
        backwards["traceEvents"][1]["dur"] = -4
        self.assertIn("before it starts",
                      self.refused("backwards.json", json.dumps(backwards).encode()))
        lonely = step()
        lonely["traceEvents"] = [row for row in lonely["traceEvents"] if row["pid"] == 1]
        self.assertIn("stage 0", self.refused("lonely.json", json.dumps(lonely).encode()))

    def test_names_that_are_wrong(self):
        for name in (self.folder / "absent.json", self.folder, "absent"):
            told = tenuto("analyze", name)
            self.assertEqual(told.returncode, 2, told.stderr)
            self.assertEqual(len(told.stderr.splitlines()), 1, told.stderr)
        trace = self.folder / "trace.json"
        trace.write_text(json.dumps(step()))
        self.assertEqual(tenuto("analyze", trace, "--picture", trace).returncode, 2)
        self.assertEqual(tenuto("analyze", trace, "--picture",
                                self.folder / "none" / "heat.svg").returncode, 1)
        self.assertEqual(json.loads(trace.read_text()), step())


if __name__ == "__main__":
    unittest.main()
