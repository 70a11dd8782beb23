"""Runs with server shards for the scripts beside this one."""
import json
import signal
import subprocess
import sys
import time

from paced_runs import Lost, toml_of, workers_of

MOST_WORDS = 2000  # of what a run has said, in an error


def end_on_signals():
    """Lets SIGTERM end the script as Ctrl-C does, so that it ends its runs first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def whole_lines(path):
    """The JSON lines of a file that another process may be writing; none if there is no file."""
    try:
        lines = path.read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("\n")]


class ServedRun:
    """One `tenuto train` for a `with` block, at whose end none of its processes is left."""

    def __init__(self, program, folder, name, sections):
        """`sections`: of the job file, without the name and the directory of the run."""
        self.program, self.folder = program, folder / name
        self.said = folder / f"{name}.txt"
        job = folder / f"{name}.toml"
        place = {"name": name, "directory": str(folder)}
        job.write_text(toml_of({**sections, "job": {**sections["job"], **place}}))
        with self.said.open("w") as output:
            self.process = subprocess.Popen([program, "train", str(job)], stdout=output,
                                            stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        # The kernel ends the processes that a launcher has started when the launcher ends.
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        end = time.monotonic() + 10
        while workers_of(self.process.pid):
            if time.monotonic() > end:
                raise Lost(f"processes {sorted(workers_of(self.process.pid).values())} are left")
            time.sleep(0.05)

    def metrics(self):
        return whole_lines(self.folder / "metrics.jsonl")

    def events(self):
        return whole_lines(self.folder / "events.jsonl")

    def fail(self, sentence):
        raise Lost(f"{sentence}: {self.said.read_text()[-MOST_WORDS:]}")

    def wait_until(self, done, limit, what):
        """Waits until done() is true. Raises Lost if the run ends before, or after `limit` s."""
        end = time.monotonic() + limit
        while not done():
            if self.process.poll() is not None:
                self.fail(f"the run ended with exit code {self.process.returncode} before {what}")
            if time.monotonic() > end:
                self.fail(f"not within {limit} s: {what}")
            time.sleep(0.01)

    def finish(self, code, limit):
        """Waits for the end of the run. Raises Lost if it has another exit code, or `limit` s are
        over."""
        try:
            found = self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            self.fail(f"it hangs: no end within {limit} s")
        if found != code:
            self.fail(f"exit code {found}, expected {code}")

    def interrupt(self, limit):
        """Ends the run as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        self.finish(130, limit)

    def inject(self, wish, limit):
        """Asks the run for something. Raises Lost if it refuses."""
        try:
            answer = subprocess.run([self.program, "inject", str(self.folder), wish],
                                    capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            self.fail(f"no answer to {wish} within {limit} s")
        if answer.returncode != 0:
            self.fail(f"{wish} was refused: {answer.stderr}")
