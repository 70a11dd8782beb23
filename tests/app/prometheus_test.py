"""A real Prometheus scrapes a run, and reads every expression of the dashboard."""
import json
import pathlib
import shutil
import socket
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

from harness import LIMIT, another_case
from live_page_test import Live

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
DASHBOARD = pathlib.Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"


def expressions(part):
    """All expressions of a dashboard, or of a part of it."""
    if isinstance(part, dict):
        own = [part["expr"]] if "expr" in part else []
        return own + [text for value in part.values() for text in expressions(value)]
    if isinstance(part, list):
        return [text for value in part for text in expressions(value)]
    return []


@unittest.skipIf(PROMETHEUS is None or PROMTOOL is None,
                 "prometheus is not installed: apt-get install prometheus, then again")
class Prometheus(Live):
    def scrape(self, run):
        """Starts a Prometheus that scrapes the run; returns its port."""
        base, _ = self.address(run)
        # Long enough for a busy machine. The address of the run is scraped again and again.
        config = {
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
            "scrape_configs": [{
                "job_name": "tenuto",
                "authorization": {"credentials_file": str(run.folder / "page.token")},
                "static_configs": [{"targets": [urllib.parse.urlsplit(base).netloc]}]}]}
        path = self.folder / "prometheus.yml"
        path.write_text(json.dumps(config))  # each JSON text is a YAML text, too
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        with (self.folder / "prometheus.log").open("w") as log:
            process = subprocess.Popen(
                [PROMETHEUS, f"--config.file={path}", f"--web.listen-address=127.0.0.1:{port}",
                 f"--storage.tsdb.path={self.folder / 'prometheus'}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return port

    def query(self, port, expression):
        """The answer of Prometheus to an expression; none while it does not answer."""
        query = urllib.parse.urlencode({"query": expression})
        address = f"http://127.0.0.1:{port}/api/v1/query?{query}"
        try:
            with urllib.request.urlopen(address, timeout=LIMIT) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                if refused.code == 503:
                    return None  # it is starting
                self.fail(f"{expression}: {refused.read().decode()}")
        except OSError:
            return None

    def value(self, port, expression):
        """The single value of an expression; none while there is none."""
        answer = self.query(port, expression)
        found = answer["data"]["result"] if answer else []
        self.assertLessEqual(len(found), 1, found)
        return float(found[0]["value"][1]) if found else None

    @another_case
    def test_a_prometheus_scrapes_a_run(self):
        run = self.begin()
        self.wait_for_state(
            run, lambda state: state["promises"]
            and all(worker["seconds"] for worker in state["workers"]), "all is shown")
        status, text = self.ask(run, "metrics")
        self.assertEqual(status, 200, text)
        check = subprocess.run([PROMTOOL, "check", "metrics"], input=text, text=True,
                               capture_output=True, timeout=LIMIT)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)

        port = self.scrape(run)
        log = self.folder / "prometheus.log"
        try:
            run.wait_until(lambda: self.value(port, "up{job=\"tenuto\"}") == 1, "a scrape")
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{log.read_text()[-4000:]}") from failure
        before = self.value(port, "tenuto_step")
        self.assertGreaterEqual(before, 5)
        self.assertEqual(self.value(port, "tenuto_workers{state=\"healthy\"}"), 4)
        self.assertEqual(self.value(port, "count(tenuto_worker_step_seconds)"), 4)
        self.assertGreater(self.value(port, "tenuto_promised_step_seconds"), 0.0119)
        run.wait_until(lambda: (self.value(port, "tenuto_step") or 0) > before, "another scrape")

        texts = expressions(json.loads(DASHBOARD.read_text()))
        self.assertGreater(len(texts), 10)
        for expression in texts:
            answer = self.query(port, expression)
            self.assertIsNotNone(answer, expression)
            self.assertEqual(answer["status"], "success", expression)
        self.finish_by_term(run)


if __name__ == "__main__":
    unittest.main()
