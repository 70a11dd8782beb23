"""The live page is examined by axe-core, in both colour schemes."""
import json
import pathlib
import shutil
import subprocess
import unittest
import urllib.request

from harness import LIMIT, another_case
from live_page_test import DECIDED, InABrowser, Live
from page_test import BROWSER

DRIVER = shutil.which("chromedriver")
AXE = pathlib.Path(__file__).parents[2] / "build" / "axe" / "axe_core_python" / "axe.min.js"
# What axe has found: the rule, how bad it is, and the first place.
FIND = """
const done = arguments[0];
axe.run().then((found) => done(found.violations.map((one) =>
  [one.id, one.impact, one.nodes[0].html.slice(0, 200), one.nodes[0].failureSummary])),
  (error) => done([["axe", "serious", "", String(error)]]));
"""


@unittest.skipIf(BROWSER is None or DRIVER is None or not AXE.exists(),
                 "chromedriver or build/axe is missing: ./run test installs both")
class Axe(Live):
    served = InABrowser.served

    def call(self, path, body=None):
        """Asks the driver of the browser, as WebDriver says."""
        request = urllib.request.Request(
            self.driver + path, data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return json.load(answer)["value"]

    def script(self, text, kind="sync"):
        return self.call(f"{self.window}/execute/{kind}", {"script": text, "args": []})

    def open_browser(self):
        process = subprocess.Popen([DRIVER, "--port=0"], text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        for line in process.stdout:
            if "started successfully on port " in line:
                self.driver = f"http://127.0.0.1:{line.split()[-1].rstrip('.')}"
                break
        options = {"binary": BROWSER, "args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={self.folder / 'profile'}"]}
        opened = self.call("/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options}}})
        self.window = f"/session/{opened['sessionId']}"
        self.call(f"{self.window}/timeouts", {"script": LIMIT * 1000, "pageLoad": LIMIT * 1000})
        self.addCleanup(lambda: urllib.request.urlopen(urllib.request.Request(
            self.driver + self.window, method="DELETE"), timeout=LIMIT).close())

    def wait_for_the_page(self):
        self.script("const done = arguments[0]; const look = () => "
                    "document.body.dataset.ready ? done() : setTimeout(look, 20); look();",
                    "async")

    def press_buttons(self, run):
        """Changes the live run by the keyboard alone, and reads from the page that it has."""
        self.call(f"{self.window}/url", {"url": (run.folder / "page.url").read_text().strip()})
        self.wait_for_the_page()
        for key, how in (("slow_workers", "adapt"), ("slow_links", "observe")):
            button = self.call(f"{self.window}/element", {
                "using": "css selector",
                "value": f'[data-key="{key}"] button[data-how="{how}"]'})
            number = next(iter(button.values()))
            self.call(f"{self.window}/element/{number}/value", {"text": "\ue007"})  # Enter
            self.wait_for_state(run, lambda state: state[key] == how, f"{key} is {how}")
            run.wait_until(lambda: self.script(
                f"return document.querySelector('[data-key=\"{key}\"] "
                f"[data-how=\"{how}\"]').getAttribute('aria-pressed')") == "true", "it is pressed")

    @another_case
    def test_axe_finds_no_serious_fault(self):
        run = self.begin()
        state = self.wait_for_state(
            run, lambda one: one["promises"]
            and all(worker["seconds"] for worker in one["workers"]), "all is shown")
        page = self.ask(run, "")[1]
        self.open_browser()
        self.press_buttons(run)
        self.finish_by_term(run)
        names = ("healthy", "slow", "joining", "dead", "absent")
        for count in (10, 128):  # one by one, and by stage
            workers = [{**state["workers"][0], "worker": w, "stages": [w % 8], "pipeline": w // 8,
                        "state": names[w % 5], "reason": "its host is busy"}
                       for w in range(count)]
            links = [{"first": w, "second": w + 1, "slow": w == 0, "round_trip_seconds": 0.001,
                      "network_round_trip_seconds": None, "bytes_per_second": [None, 1e6],
                      "repeated": 0} for w in range(count - 1)]
            address = self.served(page, {**state, "workers": workers, "links": links,
                                         "layers": "observe", **DECIDED})
            for scheme in ("light", "dark"):
                self.call(f"{self.window}/goog/cdp/execute", {
                    "cmd": "Emulation.setEmulatedMedia", "params": {"features": [
                        {"name": "prefers-color-scheme", "value": scheme}]}})
                self.call(f"{self.window}/url", {"url": address})
                self.wait_for_the_page()
                self.assertEqual(
                    self.script("return matchMedia('(prefers-color-scheme: dark)').matches"),
                    scheme == "dark")
                self.script(AXE.read_text())
                found = self.script(FIND, "async")
                serious = [one for one in found if one[1] in ("serious", "critical")]
                self.assertEqual(serious, [], f"{count} workers, {scheme}")


if __name__ == "__main__":
    unittest.main()
