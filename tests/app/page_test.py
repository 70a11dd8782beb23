"""The HTML page in a browser: no script error, every op drawn, a picture with something on it."""
import json
import re
import shutil
import struct
import subprocess
import unittest
import urllib.parse
import zlib

from harness import Case, LIMIT, TENUTO

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


def tenuto(*arguments):
    return subprocess.run([TENUTO, *map(str, arguments)], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=LIMIT)


def pixels(path):
    """Yields each row of an 8-bit RGB or RGBA PNG, with the number of bytes of a pixel."""
    data = path.read_bytes()
    width, _, depth, colour = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and colour in (2, 6), (depth, colour)
    size = 3 if colour == 2 else 4
    packed, place = b"", 8
    while place < len(data):
        length, kind = struct.unpack(">I4s", data[place:place + 8])
        if kind == b"IDAT":
            packed += data[place + 8:place + 8 + length]
        place += length + 12
    raw, before, stride = zlib.decompress(packed), bytearray(width * size), width * size + 1
    for start in range(0, len(raw), stride):
        row, how = bytearray(raw[start + 1:start + stride]), raw[start]
        for i in range(len(row) if how else 0):
            left = row[i - size] if i >= size else 0
            above, corner = before[i], before[i - size] if i >= size else 0
            if how == 4:
                guess = left + above - corner
                away = [abs(guess - value) for value in (left, above, corner)]
                guess = (left, above, corner)[away.index(min(away))]
            else:
                guess = (0, left, above, (left + above) // 2)[how]
            row[i] = (row[i] + guess) & 255
        yield row, size
        before = row


# A headless browser draws no frames while its time is virtual: use a timer instead.
FRAMES = "<script>window.requestAnimationFrame = (draw) => setTimeout(draw, 10);</script>"
# Mouse and key actions. `seen` gets one entry before the first and one after each of them.
DEEDS = """
<script>
const chart = document.getElementById("chart"), place = chart.getBoundingClientRect();
const set = document.body.dataset, seen = [];
chart.setPointerCapture = () => {};
const at = (x, y) =>
  ({ clientX: place.left + x, clientY: place.top + y, button: 0, bubbles: true });
const deeds = [
  () => chart.dispatchEvent(new WheelEvent("wheel", { ...at(500, 60), deltaY: -300 })),
  () => chart.dispatchEvent(new MouseEvent("dblclick", at(500, 60))),
  () => {
    chart.dispatchEvent(new PointerEvent("pointerdown", at(300, 60)));
    chart.dispatchEvent(new PointerEvent("pointermove", at(500, 60)));
    chart.dispatchEvent(new PointerEvent("pointerup", at(500, 60)));
  },
  () => chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" })),
  () => chart.dispatchEvent(new KeyboardEvent("keydown", { key: "-" })),
  () => chart.dispatchEvent(new KeyboardEvent("keydown", { key: "0" })),
  () => chart.dispatchEvent(new PointerEvent("pointermove", at(108, 40))),
  () => chart.dispatchEvent(new KeyboardEvent("keydown", { key: "m" })),
  () => chart.dispatchEvent(new KeyboardEvent("keydown", { key: "n" })),
  () => chart.dispatchEvent(new KeyboardEvent("keydown", { key: "j" })),
];
function next() {
  seen.push([Number(set.from), Number(set.to), document.getElementById("tip").textContent,
    document.getElementById("status").textContent, document.getElementById("mail").checked]);
  if (deeds.length === 0) { set.seen = encodeURIComponent(JSON.stringify(seen)); return; }
  deeds.shift()();
  setTimeout(next, 60);
}
setTimeout(next, 60);
</script>
"""


@unittest.skipIf(BROWSER is None, "no browser is installed: apt-get install chromium, then again")
class Page(Case):
    def browse(self, page, *arguments, **more):
        return self.started(page, *arguments, **more).stdout

    def started(self, page, *arguments, fragment="", height=1200):
        # A profile of its own, so that runs side by side do not meet.
        result = subprocess.run(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--disable-background-networking",
             f"--user-data-dir={self.folder / 'profile'}", "--virtual-time-budget=2000",
             f"--window-size=1000,{height}", *arguments, f"file://{page}{fragment}"],
            text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=LIMIT)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def opened(self, page, **more):
        """Opens the page; returns the data-* values that its script has set, and its DOM."""
        text = self.browse(page, "--dump-dom", **more)
        body = re.search(r"<body([^>]*)>", text)
        self.assertIsNotNone(body, text[:2000])
        said = dict(re.findall(r'data-([a-z-]+)="([^"]*)"', body.group(1)))
        self.assertNotIn("error", said)
        self.assertEqual(said.get("ready"), "yes", said)
        source = page.read_text()
        self.assertNotRegex(source, r"(?i)https?:|//[a-z0-9-]+\.[a-z]|\bsrc=|\bhref=|url\(")
        return said, text

    def ops_of(self, *arguments):
        """The number of forwards, backwards and weight gradients in the text of a schedule."""
        shown = tenuto("schedule", "show", *arguments)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        lists = re.findall(r"^w\d+: (.*)$", shown.stdout, re.M)
        return sum(len(re.findall(r"(?:^| )[FBW]\d+\.\d+", line)) for line in lists)

    def test_a_priced_schedule(self):
        page = self.folder / "page.html"
        shape = ("--order", "zb-h1", "--stages", 4, "--micros", 12)
        done = tenuto("simulate", *shape, "--slow-link", "1:20", "--page", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        # The fragment points at the fifth op of worker 0, its first backward.
        said, text = self.opened(page, fragment="#messages=1&op=0.0.4")
        self.assertEqual(int(said["ops"]), self.ops_of(*shape))
        self.assertEqual(said["drawn"], said["ops"])
        self.assertEqual(int(said["messages"]), 2 * 3 * 12)
        self.assertIn("B0.0 on worker 0", text)
        self.assertIn("waited 70 ms for gradient 1.0 from worker 1 (link 1 -&gt; 0)", text)
        picture = self.folder / "page.png"
        self.browse(page, f"--screenshot={picture}", height=500)
        found = {}
        for row, size in pixels(picture):
            for name, colour in (("forward", "56b4e9"), ("backward", "e69f00"),
                                 ("weight", "1aa37a")):
                found[name] = found.get(name, 0) + row.count(bytes.fromhex(colour) +
                                                             b"\xff" * (size - 3))
        # Each kind of op fills a third of the busy time.
        for name, count in found.items():
            self.assertGreater(count, 3000, (name, found))

    def test_a_plan(self):
        layers, cluster = self.folder / "a.chain", self.folder / "cluster.json"
        layers.write_text("".join(f"1 2 1000000 4000000 <b>\"layer'&\x01{i}</b>\n"
                                  for i in range(12)))
        cluster.write_text(json.dumps({
            "devices": 9, "speed": [1] * 8 + [0.001],
            "bandwidth_gbps": {"inside": 25, "between": 3, "per_node": 4}}))
        page, plan = self.folder / "plan.html", self.folder / "plan.json"
        done = tenuto("plan", "--chain", layers, "--cluster", cluster, "--micros", 8,
                      "--html", page, "--plan", plan)
        self.assertEqual(done.returncode, 0, done.stderr)
        stages = json.loads(plan.read_text())["stages"]
        picture = self.folder / "plan.png"
        result = self.started(page, "--enable-logging=stderr", f"--screenshot={picture}",
                              "--dump-dom")
        self.assertNotIn("CONSOLE", result.stderr)
        self.assertNotRegex(page.read_text(),
                            r"(?i)https?:|//[a-z0-9-]+\.[a-z]|\bsrc=|\bhref=|<script")
        drawings = re.findall(r"<svg class=.map. role=.img.*?</svg>", result.stdout, re.S)
        self.assertEqual(len(drawings), 2)
        for drawing in drawings:
            numbers = re.findall(r"<title>device (\d+),", drawing)
            self.assertEqual(sorted(map(int, numbers)), list(range(9)))
            self.assertIn("place 2", drawing)
        self.assertIn("idle", drawings[0])
        self.assertNotIn("<b>\"layer", result.stdout)
        self.assertEqual(len(re.findall("<title>link ", drawings[1])), len(stages) - 1)
        found = sum(row.count(bytes.fromhex("56b4e9") + b"\xff" * (size - 3))
                    for row, size in pixels(picture))
        self.assertGreater(found, 3000)  # the colour of stage 0

    def test_a_large_schedule(self):
        page = self.folder / "page.html"
        shape = ("--order", "zb-h1", "--stages", 64, "--micros", 512)
        self.assertEqual(tenuto("simulate", *shape, "--page", page).returncode, 0)
        said, _ = self.opened(page, height=3000)  # so that all rows are in sight
        self.assertEqual(int(said["drawn"]), 64 * 512 * 3)
        print(f"{page.stat().st_size} bytes, drawn in {said['draw-ms']} ms")

    def test_a_run_beside_its_price(self):
        self.write_job(job__trace_steps=[3], job__steps=5)
        run = self.train()
        page = self.folder / "page.html"
        done = tenuto("simulate", self.job, "--measured", run.folder, "--page", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        said, text = self.opened(page)
        # Each of 4 workers runs a forward and a whole backward of 2 micro-batches, a norm and an
        # update. The page shows all of them twice: as priced and as measured.
        self.assertEqual(int(said["ops"]), 2 * (4 * 2 * 2 + 4 * 2))
        self.assertEqual(said["drawn"], said["ops"])
        self.assertIn("trace-3.json", text)
        self.assertIn("times the promise", text)
        other = tenuto("simulate", self.job, "--measured", self.folder, "--page", page)
        self.assertEqual(other.returncode, 2)
        self.assertIn("has no trace-STEP.json", other.stderr)

    def test_wheel_pointer_and_keys(self):
        page = self.folder / "page.html"
        done = tenuto("simulate", "--stages", 2, "--micros", 4, "--page", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = page.read_text().replace("<body>", "<body>" + FRAMES)
        page.write_text(text.replace("</body>", DEEDS + "</body>"))
        said, _ = self.opened(page)
        seen = json.loads(urllib.parse.unquote(said["seen"]))
        (begin, wheel, whole, drag, right, farther, all_of_it, pointed, messages, first,
         below) = seen
        wide = [entry[1] - entry[0] for entry in seen]
        self.assertEqual(begin[:2], [0, 150])
        self.assertLess(wide[1], 100)
        self.assertTrue(0 < wheel[0] < wheel[1] < 150)
        self.assertEqual(whole[:2], [0, 150])
        # The drag went over 200 of the about 840 pixels of a row.
        self.assertTrue(25 < wide[3] < 45, drag)
        self.assertAlmostEqual(right[0] - drag[0], wide[3] / 5, places=6)
        self.assertAlmostEqual(wide[5], wide[4] * 1.5, places=6)
        self.assertEqual(all_of_it[:2], [0, 150])
        self.assertIn("F0.0 on worker 0", pointed[2])
        self.assertIn("started as early as its worker began", pointed[2])
        self.assertEqual((pointed[4], messages[4]), (False, True))
        self.assertIn("F0.0 on worker 0; forward, stage 0, micro-batch 0", first[3])
        self.assertIn("waited 10 ms for activation 0.0 from worker 0 (link 0 -> 1)", below[3])

    def test_schedule_show(self):
        page = self.folder / "page.html"
        shape = ("--order", "1f1b", "--stages", 3, "--micros", 5)
        done = tenuto("schedule", "show", *shape, "--page", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        numbers = re.search(r'id="data">(.*?)</script>', page.read_text(), re.S).group(1)
        lanes = json.loads(numbers)["timelines"][0]["lanes"]
        # Backwards are whole: the weight gradients in the text take no time and are not drawn.
        self.assertEqual(sum(map(len, lanes)) // 7, self.ops_of(*shape) * 2 // 3)


if __name__ == "__main__":
    unittest.main()
