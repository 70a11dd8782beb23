"""What the comparisons of this folder share: processes, settings, medians and tables."""
import argparse
import ctypes
import importlib.util
import json
import os
import pathlib
import platform
import queue
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from paced_runs import Lost, workers_of  # noqa: E402: the path of bench/ comes first

CORES = sorted(os.sched_getaffinity(0))
LIMIT = 180  # seconds; no answer of a process takes so long
PR_SET_TIMERSLACK = 29


def sharpen_timer():
    """Lets sleeps of this process end as exactly as those of Tenuto's paced devices."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)


def free_port():
    """A TCP port of the loopback that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def pin(process, worker):
    """Lets all threads of a process run on one core: workers take the cores in turn."""
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), {CORES[worker % len(CORES)]})
        except ProcessLookupError:
            pass  # this thread has ended


def pin_workers(launcher):
    """Pins each worker that `tenuto train` or `tenuto launch`, the process `launcher`, started."""
    for worker, process in workers_of(launcher).items():
        pin(process, worker)


# One thread a process. Freed memory is kept for the next allocation: workers of Tenuto set that
# themselves, and their peers shall not get the pages of each activation anew either.
WORKER_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
                      "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


class LineProcess:
    """A process that answers a line with a line. It is killed with all that it has started."""

    def __init__(self, words, worker=None, **environment):
        self.name = " ".join(str(word) for word in words)
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, text=True, start_new_session=True,
            env={**os.environ, **WORKER_ENVIRONMENT, **environment})
        if worker is not None:
            pin(self.process.pid, worker)
        self.lines = queue.Queue()
        threading.Thread(target=self._pass_lines, daemon=True).start()

    def _pass_lines(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def write(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended: read() tells why

    def read(self):
        try:
            line = self.lines.get(timeout=LIMIT)
        except queue.Empty:
            raise Lost(f"no answer within {LIMIT} s from {self.name}: {self.told()}") from None
        if line is None:
            raise Lost(f"{self.name} has ended: {self.told()}")
        return line

    def told(self):
        """The end of what it has written to stderr."""
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def end(self):
        kill_group(self.process)


def whole_lines(path):
    """The JSON lines of a file that is being written, without one that is half written; none when
    there is no such file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


def kill_group(process):
    """Kills a process that was started as the leader of its session, with all of that session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def stop(process):
    """Asks a process that leads its session to end, so that it ends what it has started elsewhere;
    kills what is left."""
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        pass
    kill_group(process)


def ask_all(processes, line):
    """Gives all the line; their answers, in order."""
    for process in processes:
        process.write(line)
    return [process.read() for process in processes]


def parser_of(description):
    """The flags that all comparisons have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--tenuto", default=str(ROOT / "build" / "release" / "src" / "app" /
                                                "tenuto"), help="the program")
    parser.add_argument("--repeats", type=int, default=0,
                        help="runs of each system, which take turns (0: as many as it needs)")
    parser.add_argument("--quick", action="store_true", help="a small case, once")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    return parser


def read_flags(parser, repeats):
    """The flags; `repeats` is the default of --repeats. Ends the program if they do not fit."""
    flags = parser.parse_args()
    if flags.repeats < 0:
        parser.error("--repeats is a whole number from 1 on")
    flags.repeats = flags.repeats or (1 if flags.quick else repeats)
    if not os.access(flags.tenuto, os.X_OK):
        parser.error(f"there is no program {flags.tenuto}: build it with ./run --version, or name "
                     "another one with --tenuto")
    return flags


def has_module(name):
    """Whether this Python can import a module of the top level."""
    return importlib.util.find_spec(name) is not None


def why_not(module):
    """Why this Python cannot import a module, as Python itself says it; None if it can."""
    run = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True,
                         timeout=LIMIT, check=False)
    if run.returncode == 0:
        return None
    said = run.stderr.strip().splitlines()
    return said[-1] if said else f"import {module} ends with exit code {run.returncode}"


def settings_of(flags, **more):
    """Machine, versions and settings of a comparison, as a dictionary of texts and numbers."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    version = subprocess.run([flags.tenuto, "--version"], capture_output=True, text=True,
                             timeout=LIMIT, check=True).stdout.splitlines()[0]
    return {"machine": models[0] if models else platform.machine(), "cores": len(CORES),
            "load": round(os.getloadavg()[0], 2), "tenuto": version, "repeats": flags.repeats,
            **more}


def versions(*packages):
    """The versions of Python packages, as entries for settings_of()."""
    from importlib import metadata
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def median(values):
    """None without values."""
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def ratio(one, other):
    """None if one of both is missing."""
    return one / other if one is not None and other else None


def ratios(ones, others):
    """The median of the ratios of runs that took turns; None without any."""
    return median([ratio(one, other) for one, other in zip(ones, others)])


def cell(value):
    """The text of a cell: numbers get digits by their size, None is a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 20 else f"{value:.3f}"
    return str(value)


def table(heads, rows):
    """The text of a table. The first column is on the left, the others on the right."""
    lines = [list(heads)] + [[cell(value) for value in row] for row in rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    return "\n".join("  ".join(
        text.ljust(width) if place == 0 else text.rjust(width)
        for place, (text, width) in enumerate(zip(line, widths))).rstrip() for line in lines)


def show(flags, settings, heads, rows, notes=()):
    """Prints the settings on stderr and the table on stdout, or both as one JSON object. `rows` are
    lists of values in the order of `heads`."""
    if flags.json:
        print(json.dumps({"settings": settings, "notes": list(notes),
                          "rows": [dict(zip(heads, row)) for row in rows]}))
        return
    print("; ".join(f"{name} {value}" for name, value in settings.items()), file=sys.stderr)
    print(table(heads, rows))
    for note in notes:
        print(note)


def run_main(main):
    """Calls main(); a comparison that cannot be made ends with its sentence."""
    try:
        main()
    except Lost as lost:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {lost}")
