"""Starts tenuto as a user would, and looks at what it leaves behind."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

TENUTO = os.environ["TENUTO"]
# Seconds. Nothing here takes so long: a wait that reaches the limit fails instead of hanging.
LIMIT = 120
# The heartbeat timeout, in seconds, of runs that wait for it to expire. It is long because a busy
# machine may delay the heartbeats of living workers by seconds.
SILENCE = 10
# Under a sanitizer every process takes seconds to start. Sanitizers look at code, so a test that
# runs the same code on another case is skipped there.
SANITIZED = bool(os.environ.get("TENUTO_SANITIZE"))
another_case = unittest.skipIf(SANITIZED, "sanitizers see the same code in the cases beside it")


def long_case(method):
    """Marks a test that takes more than 30 s in the release build: `./run test --long` runs it."""
    return method


def busy_case(method):
    """Marks a test that computes for long: ctest leaves it a core."""
    return method


class Run:
    """One `tenuto train` under way."""

    def __init__(self, process, folder):
        self.process = process
        self.folder = folder
        self.output = self.errors = ""

    def metrics(self):
        try:
            text = (self.folder / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return []
        lines = text.splitlines(keepends=True)
        # During the run the last line may be half written.
        if lines and not lines[-1].endswith("\n") and self.process.poll() is None:
            lines.pop()
        return [json.loads(line) for line in lines]

    def events(self):
        text = (self.folder / "events.jsonl").read_text()
        lines = text.splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n") and self.process.poll() is None:
            lines.pop()  # half written
        return [json.loads(line) for line in lines]

    def plans_in_force(self):
        """The first step of each plan that replaced another one, and the reasons of all
        decisions."""
        reasons = [event["reason"] for event in self.events() if event["event"] == "decision"]
        found = [re.fullmatch(r"plan \d+ \(.*\) is in force from step (\d+)", reason)
                 for reason in reasons]
        return [int(change[1]) for change in found if change], reasons

    def account(self):
        """The number of steps and the last events, for the message of a test that fails."""
        events = [f"{event['event']}: {event['reason']}" for event in self.events()[-30:]]
        return "\n".join([f"{len(self.metrics())} steps", *events])

    def wait_until(self, done, what):
        """Waits until done() is true; fails if the run ends before, or after LIMIT."""
        end = time.monotonic() + LIMIT
        while not done():
            if self.process.poll() is not None:
                if done():
                    return
                self.finish()
                raise AssertionError(f"ended before {what}: {self.errors}{self.output}")
            if time.monotonic() > end:
                raise AssertionError(f"not within {LIMIT} s: {what}\n{self.account()}")
            time.sleep(0.01)

    def wait_for_steps(self, count):
        """Waits for `count` steps. LIMIT is for each step: on a busy machine many are slow."""
        while (begun := len(self.metrics())) < count:
            self.wait_until(lambda: len(self.metrics()) > begun, f"step {begun} of {count}")

    def send_and_wait(self, number):
        """Sends a signal and waits until the process has taken it, whatever it then does."""
        self.process.send_signal(number)

        def taken():
            try:
                status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                return True
            pending = [line.split()[1] for line in status.splitlines()
                       if line.startswith(("SigPnd", "ShdPnd"))]
            return not any(int(mask, 16) & 1 << number - 1 for mask in pending)

        self.wait_until(taken, f"signal {number} is taken")

    def workers(self):
        """Process of each worker, by number."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                arguments = (entry / "cmdline").read_bytes().decode().split("\0")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if "--parent" not in arguments or "--worker" not in arguments:
                continue
            if arguments[arguments.index("--parent") + 1] == str(self.process.pid):
                found[int(arguments[arguments.index("--worker") + 1])] = int(entry.name)
        return found

    def finish(self):
        """Waits for the end while the run makes steps; returns the exit code."""
        steps, ended = -1, False
        while not ended:
            try:
                self.output, self.errors = self.process.communicate(timeout=LIMIT)
                ended = True
            except subprocess.TimeoutExpired:
                if len(self.metrics()) == steps:
                    raise
                steps = len(self.metrics())
        for log in self.folder.glob("worker-*.log"):
            text = log.read_text()
            fault = text.find("Sanitizer: ")
            fault = text.find("runtime error: ") if fault < 0 else fault
            if fault >= 0:
                raise AssertionError(f"{log.name}: {text[max(0, fault - 200):][:8000]}")
        return self.process.returncode

    def checkpoints(self):
        names = [entry.name.split("-")[1] for entry in self.folder.glob("checkpoint-*")]
        return sorted(int(name) for name in names if name.isdigit())


def alive(process):
    """Whether a process exists and has not ended."""
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tenuto-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.job = self.folder / "job.toml"
        self.write_job()

    def need_torch(self):
        version = subprocess.run([TENUTO, "--version"], capture_output=True, text=True,
                                 timeout=LIMIT)
        if "no torch" in version.stdout:
            self.skipTest("this build has no torch")

    def write_job(self, **more):
        """A paced job of 2 pipelines x 2 stages; `more` as section__key=value."""
        settings = {
            "job": {"name": "small", "steps": 20, "directory": str(self.folder / "runs"),
                    "checkpoint_every": 5, "validate_every": 10, "validate_micros": 2},
            "parallel": {"stages": 2, "pipelines": 2, "micros": 2},
            "device": {"kind": "paced", "forward_ms": [2.0], "backward_input_ms": [2.0],
                       "backward_weight_ms": [2.0], "message_bytes": 4096},
            "network": {"connect_seconds": 60.0},
            # A busy machine may delay a worker's heartbeat by as much.
            "resilience": {"silence_seconds": 30.0},
        }
        for name, value in more.items():
            section, key = name.split("__")
            settings.setdefault(section, {})[key] = value
        lines = []
        for section, keys in settings.items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        self.job.write_text("\n".join(lines) + "\n")

    def start(self, *arguments, name="small", command="train", environment=None, limit_file=None):
        def limits():
            if limit_file is not None:
                import resource
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit_file, limit_file))

        process = subprocess.Popen(
            [TENUTO, command, str(self.job), f"--job.name={name}", *arguments], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})}, preexec_fn=limits)
        run = Run(process, self.folder / "runs" / name)
        self.addCleanup(self.clean_up, run)
        return run

    @staticmethod
    def clean_up(run):
        if run.process.poll() is None:
            run.process.kill()
        for stream in (run.process.stdout, run.process.stderr):
            if stream:
                stream.close()
        run.process.wait()

    def train(self, *arguments, expected=0, **more):
        """Trains to the end and expects the exit code."""
        run = self.start(*arguments, **more)
        code = run.finish()
        self.assertEqual(code, expected, f"stderr: {run.errors}\nstdout: {run.output}\n"
                                         f"logs: {self.logs(run)}")
        return run

    @staticmethod
    def logs(run):
        return {entry.name: entry.read_text()[-2000:] for entry in run.folder.glob("worker-*.log")}

    def assert_gone(self, workers, limit=LIMIT):
        """Waits until none of the processes is left; returns the seconds that it took."""
        begin = time.monotonic()
        while any(alive(process) for process in workers.values()):
            self.assertLess(time.monotonic() - begin, limit, f"still alive of {workers}")
            time.sleep(0.01)
        return time.monotonic() - begin

    def losses(self, run):
        return {line["step"]: line["loss"] for line in run.metrics()}


KILL, STOP, TERM, INT = signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT
