"""The page and the metrics of real runs: over HTTP, and in a browser."""
import http.server
import json
import os
import re
import resource
import socket
import stat
import subprocess
import threading
import unittest
import urllib.error
import urllib.request

from harness import Case, LIMIT, TERM, another_case
from page_test import BROWSER
from train_peers_test import Peers


# A decision of a later version, of which some prices are missing, and held-out passes.
DECIDED = {
    "compared_in": 7,
    "alternatives": [
        {"name": "<b>move</b> layers", "step_seconds": 0.125, "change_seconds": None,
         "total_seconds": None, "progress": None, "chosen": True},
        {"name": "stay", "step_seconds": 0.25, "change_seconds": 0, "total_seconds": None,
         "progress": None, "chosen": False}],
    "validations": [{"step": 4, "loss": 3.0, "accuracy": 0.25},
                    {"step": 9, "loss": 2.5, "accuracy": 0.5}]}


class Live(Case):
    """Reads the page of a run; a class without tests."""

    def begin(self, *arguments):
        run = self.start("--job.steps=5000", "--job.checkpoint_every=0", *arguments)
        run.wait_for_steps(5)
        return run

    def address(self, run):
        """The page's address, up to its token, and the token."""
        where = run.folder / "page.url"
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)\?token=([0-9a-f]{32})\n",
                             where.read_text())
        self.assertIsNotNone(found, where.read_text())
        return found.groups()

    def ask(self, run, path, body=None, token=None):
        """The status and the text of an answer."""
        base, known = self.address(run)
        request = urllib.request.Request(
            base + path, data=body, headers={"Authorization": f"Bearer {token or known}"})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def state(self, run, since=0):
        status, text = self.ask(run, f"api/state?since={since}")
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def wait_for_state(self, run, done, what):
        """Waits until the page shows what is wanted; returns it."""
        seen = []

        def shown():
            seen[:] = [self.state(run)]
            return done(seen[0])

        run.wait_until(shown, what)
        return seen[0]

    def finish_by_term(self, run):
        run.process.send_signal(TERM)
        self.assertEqual(run.finish(), 143, run.errors)


class LivePage(Live):
    def test_the_state_and_the_metrics_of_a_run(self):
        run = self.begin()
        for name in ("page.url", "page.token"):
            self.assertEqual(stat.S_IMODE(os.stat(run.folder / name).st_mode), 0o600)
        state = self.wait_for_state(
            run, lambda state: state["step"] >= 5 and state["promises"] and state["validations"]
            and all(worker["seconds"] for worker in state["workers"]), "all is shown")
        self.assertEqual((state["job"], state["situation"], state["steps"]),
                         ("small", "running", 5000))
        self.assertEqual([(worker["stages"], worker["pipeline"], worker["state"])
                          for worker in state["workers"]],
                         [([0], 0, "healthy"), ([1], 0, "healthy"), ([0], 1, "healthy"),
                          ([1], 1, "healthy")])
        for worker in state["workers"]:
            # Two micro-batches, each part takes 2 ms; backwards are not split.
            self.assertGreaterEqual(worker["seconds"]["forward"], 0.0039)
            self.assertGreaterEqual(worker["seconds"]["backward"], 0.0079)
            self.assertEqual(worker["seconds"]["weight"], 0)
            self.assertGreaterEqual(worker["seconds"]["whole"], 0.0119)
        self.assertGreater(state["promises"][0]["seconds"], 0.0119)
        self.assertEqual(state["history"][0]["step"], 0)
        self.assertIsNotNone(state["history"][0]["loss"])
        self.assertEqual(state["validations"][0]["step"], 9)  # job.validate_every = 10
        self.assertIsNotNone(state["validations"][0]["loss"])
        self.assertIn("start", [event["event"] for event in state["events"]])
        self.assertEqual(self.state(run, state["serial"] + 1000)["events"], [])

        status, text = self.ask(run, "metrics")
        self.assertEqual(status, 200)
        values = dict(line.rsplit(" ", 1) for line in text.splitlines()
                      if not line.startswith("#"))
        self.assertGreaterEqual(float(values["tenuto_step"]), 5)
        self.assertEqual(values["tenuto_workers{state=\"healthy\"}"], "4")
        self.assertIn("tenuto_loss", values)
        self.assertIn("tenuto_validation_loss", values)
        self.assertGreater(float(values["tenuto_promised_step_seconds"]), 0.0119)
        self.assertGreater(float(values["tenuto_coordinator_cpu_seconds_total"]), 0)
        self.finish_by_term(run)
        self.assertIn("page: http://127.0.0.1:", run.output)
        self.assertFalse((run.folder / "page.url").exists())
        self.assertFalse((run.folder / "page.token").exists())

    def test_who_may_ask_and_for_what(self):
        run = self.begin()
        base, token = self.address(run)
        for path, body in (("", None), ("api/state", None), ("metrics", None),
                           ("api/inject", b"checkpoint")):
            status, text = self.ask(run, path, body, token="0" * 32)
            self.assertEqual(status, 403, text)
        with urllib.request.urlopen(f"{base}?token={token}", timeout=LIMIT) as page:
            self.assertIn("default-src 'none'", page.headers["Content-Security-Policy"])
        self.assertEqual(self.ask(run, "elsewhere")[0], 404)
        self.assertEqual(self.ask(run, "api/inject", b"x" * 5000)[0], 413)

        status, text = self.ask(run, "api/inject", b"resilience.slow_links=observe")
        self.assertEqual((status, json.loads(text)),
                         (200, {"answer": "resilience.slow_links=observe: done"}))
        status, text = self.ask(run, "api/inject", b"resilience.slow_links=sometimes")
        self.assertEqual(status, 400)
        self.assertIn("expected resilience.slow_links=adapt", json.loads(text)["error"])
        self.wait_for_state(run, lambda state: state["slow_links"] == "observe", "only observe")
        status, text = self.ask(run, "api/inject", b"resilience.slow_workers=adapt")
        self.assertEqual(status, 200, text)
        state = self.wait_for_state(run, lambda state: state["slow_workers"] == "adapt", "act")
        self.assertEqual(state["layers"], "")  # it cannot be changed in this run
        status, text = self.ask(run, "api/inject", b"resilience.layers=adapt")
        self.assertEqual(status, 400, text)
        self.assertIn("the layers of this run cannot move", json.loads(text)["error"])
        status, text = self.ask(run, "api/inject", b"link=0-1:5ms")
        self.assertEqual(status, 200, text)
        state = self.wait_for_state(run, lambda state: state["faults"] > 0, "the fault is shown")
        self.assertIn("fault", [event["event"] for event in state["events"]])
        self.finish_by_term(run)

    @another_case
    def test_bad_clients_do_not_touch_the_run(self):
        run = self.begin()
        base, token = self.address(run)
        port = int(base.rsplit(":", 1)[1].strip("/"))
        # More than the page serves at once: some ask for ever, some never read, some say nonsense.
        held = []
        for i in range(200):
            client = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
            self.addCleanup(client.close)
            try:
                client.sendall([b"GET / HT", f"GET /?token={token} HTTP/1.1\r\n\r\n".encode(),
                                b"\0\xff\r\n\r\n"][i % 3])
            except OSError:
                pass  # it was refused before
            held.append(client)
        run.wait_for_steps(len(run.metrics()) + 20)
        for client in held:
            client.close()

        def answers():
            try:
                return self.ask(run, "metrics")[0] == 200
            except OSError:
                return False  # refused: the server has not noticed yet that the others are gone

        run.wait_until(answers, "the page answers again")
        self.finish_by_term(run)

    @another_case
    def test_a_thousand_scrapes_and_a_thousand_clients(self):
        run = self.begin()
        port = int(self.address(run)[0].rsplit(":", 1)[1].strip("/"))
        # As fast as they can, far above the limit of a second: each has an answer.
        answers = {}
        for _ in range(1000):
            status, _ = self.ask(run, "metrics")
            answers[status] = answers.get(status, 0) + 1
        self.assertLessEqual(set(answers), {200, 503}, answers)
        self.assertGreater(answers.get(200, 0), 0, answers)
        # A thousand that connect and say nothing. Who comes above the limit is refused.
        clients = []
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        for _ in range(1000):
            try:
                clients.append(socket.create_connection(("127.0.0.1", port), timeout=LIMIT))
            except OSError:
                continue  # refused
            self.addCleanup(clients[-1].close)
        self.assertGreater(len(clients), 64)
        run.wait_for_steps(len(run.metrics()) + 20)
        for client in clients:
            client.close()
        self.assertNotIn("death", [event["event"] for event in run.events()])
        self.finish_by_term(run)

    @another_case
    def test_a_page_whose_port_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            run = self.train("--job.steps=3", f"--coordinator.page=127.0.0.1:{port}")
        self.assertIn(f"this run has no page: cannot listen at 127.0.0.1:{port}: Address already "
                      "in use", run.output)
        self.assertFalse((run.folder / "page.url").exists())
        self.assertEqual(len(run.metrics()), 3)

    @another_case
    def test_a_run_without_a_page(self):
        run = self.train("--job.steps=3", "--coordinator.page=off")
        self.assertNotIn("page: ", run.output)
        self.assertFalse((run.folder / "page.url").exists())

    def test_the_page_outlives_its_coordinator(self):
        run = self.begin()
        run.wait_until(lambda: any("validation_loss" in line for line in run.metrics()),
                       "a held-out pass")
        before = self.address(run)
        status, text = self.ask(run, "api/inject", b"kill=coordinator")
        self.assertEqual(status, 200, text)
        run.wait_until(lambda: "coordinator" in [event["event"] for event in run.events()],
                       "another coordinator")
        step = len(run.metrics())

        def answers():
            try:
                return self.state(run)["step"] > step
            except (OSError, AssertionError):
                return False  # it does not listen yet, or has shown nothing yet

        run.wait_until(answers, "the page of the next coordinator")
        self.assertEqual(self.address(run), before)
        # The run is shown from its beginning.
        state = self.state(run)
        written = run.events()
        names = [event["event"] for event in state["events"]]
        self.assertEqual(names[:2], [event["event"] for event in written[:2]])
        self.assertIn("start", names)
        self.assertIn("coordinator", names)
        self.assertGreaterEqual(state["faults"], 1)  # the coordinator's death
        first = run.metrics()[0]
        self.assertEqual((state["history"][0]["step"], state["history"][0]["loss"]),
                         (0, first["loss"]))
        self.assertEqual(state["validations"][0]["step"], 9)
        self.assertGreaterEqual(state["serial"], len(names))
        self.finish_by_term(run)


class ServedPage(Peers):
    def test_a_run_whose_replicas_keep_the_parameters(self):
        run = self.start_endless("--sync.mode=asynchronous")
        run.wait_for_steps(3)
        live = Live()
        state = live.wait_for_state(run, lambda state: state["history"], "its steps are shown")
        self.assertEqual((state["mode"], state["situation"]), ("asynchronous", "running"))
        self.assertEqual({worker["kind"] for worker in state["workers"]}, {"replica"})
        self.assertGreater(state["mass"], 0)
        status, text = live.ask(run, "api/inject", b"sync.mode=x:2")
        self.assertEqual((status, json.loads(text)), (200, {"answer": "sync.mode=x:2: done"}))
        state = live.wait_for_state(run, lambda state: state["mode"] == "x:2", "the other mode")
        self.assertGreaterEqual(state["plan_changes"], 1)
        self.assertIn("x:2", state["plan"]["why"])
        self.interrupt(run)


@unittest.skipIf(BROWSER is None, "no browser is installed: apt-get install chromium, then again")
class InABrowser(Live):
    def opened(self, address):
        """Opens the page; returns the data-* values that its script has set, and its DOM."""
        result = subprocess.run(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--disable-background-networking", f"--user-data-dir={self.folder / 'profile'}",
             "--virtual-time-budget=4000", "--window-size=1000,1600", "--dump-dom", address],
            text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=LIMIT)
        self.assertEqual(result.returncode, 0, result.stderr)
        body = re.search(r"<body([^>]*)>", result.stdout)
        self.assertIsNotNone(body, result.stdout[:2000])
        said = dict(re.findall(r'data-([a-z-]+)="([^"]*)"', body.group(1)))
        self.assertNotIn("error", said)
        self.assertEqual(said.get("ready"), "yes", result.stdout[-4000:])
        return said, re.sub("<script.*?</script>", "", result.stdout, flags=re.DOTALL)

    def served(self, page, state):
        """The address of a server that serves this page with this state."""
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asks = self.path.startswith("/api/state")
                body = (json.dumps(state) if asks else page).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json" if asks else "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_address[1]}/?token=none"

    def test_the_page_shows_a_run_of_any_size(self):
        run = self.begin()
        self.wait_for_state(
            run, lambda state: state["promises"]
            and all(worker["seconds"] for worker in state["workers"]), "all is shown")
        said, text = self.opened((run.folder / "page.url").read_text().strip())
        self.assertEqual(said["workers"], "4")
        self.assertGreater(float(said["loss"]), 0)
        for worker in range(4):
            self.assertIn(f"worker {worker}, healthy: forward ", text)
        self.assertIn("4 workers, 4 healthy.", text)
        self.assertIn("times the promise", text)
        page, state = self.ask(run, "")[1], self.state(run)
        self.finish_by_term(run)

        # The same page with 2 workers, and with 512 of which one is slow.
        for count in (2, 512):
            first = state["workers"][0]
            workers = [{**first, "worker": w, "stages": [w % 8], "pipeline": w // 8}
                       for w in range(count)]
            workers[-1] = {**workers[-1], "state": "slow", "reason": "<i>its host</i> is busy"}
            links = [{"first": w, "second": w + 1, "slow": w == 0, "round_trip_seconds": 0.001,
                      "network_round_trip_seconds": None, "bytes_per_second": [None, 1e6],
                      "repeated": 0} for w in range(count - 1)]
            said, text = self.opened(self.served(page, {**state, "workers": workers,
                                                        "links": links, **DECIDED}))
            self.assertEqual(said["workers"], str(count))
            self.assertIn(f"{count} workers, {count - 1} healthy.", text)
            self.assertIn("&lt;i&gt;its host&lt;/i&gt; is busy", text)  # as text, not as HTML
            self.assertEqual("median step" in text, count > 64)
            self.assertIn("1 slow", text)
            self.assertIn("What was compared in step 7", text)
            self.assertIn('<th scope="row">&lt;b&gt;move&lt;/b&gt; layers</th>'
                          '<td class="chosen">125 ms</td><td class="chosen"></td>'
                          '<td class="chosen">chosen</td>', text)
            self.assertIn("Held-out loss after step 9: 2.5000", text)
            self.assertIn("at last 50.0 %", text)


if __name__ == "__main__":
    unittest.main()
