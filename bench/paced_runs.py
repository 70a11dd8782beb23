"""Runs of paced workers for the scripts beside this one."""
import json
import os
import pathlib
import subprocess
import sys
import time


class Lost(Exception):
    """A run broke a promise; the message says which."""


def lines_of(path):
    """The JSON lines of a file; none when there is no such file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tenuto(program, *words, limit=300):
    """What a command of the program prints, after at most `limit` seconds; ends the script with its
    words and what it said if it fails."""
    done = subprocess.run([program, *map(str, words)], text=True, capture_output=True,
                          timeout=limit)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}{done.stdout}")
    return done.stdout


def total_period(metrics):
    """The milliseconds of all steps of these lines, each from the end of the step before."""
    return sum(line.get("period_ms") or line["iteration_ms"] for line in metrics)


def workers_of(parent):
    """The process of each worker that the process `parent` has started, by number."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if "--parent" in words and words[words.index("--parent") + 1] == str(parent):
            found[int(words[words.index("--worker") + 1])] = int(entry.name)
    return found


def processor_seconds(process):
    """The processor time that a process and all below it have used so far."""
    parents, ticks = {}, {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        number = int(entry.name)
        parents[number], ticks[number] = int(fields[1]), int(fields[11]) + int(fields[12])

    def is_below(number):
        while number != process and number in parents:
            number = parents[number]
        return number == process

    return sum(ticks[number] for number in ticks if is_below(number)) / os.sysconf("SC_CLK_TCK")


def toml_of(sections, faults=()):
    """The text of a job file: a dictionary of keys for each section, and for each [[fault]]."""
    tables = [(f"[{name}]", keys) for name, keys in sections.items()]
    tables += [("[[fault]]", keys) for keys in faults]
    return "".join(f"{head}\n" + "".join(f"{key} = {json.dumps(value)}\n"
                                         for key, value in keys.items()) for head, keys in tables)


def begin(program, job, name):
    """Starts a run of a job file whose job.directory is the folder of the file."""
    return subprocess.Popen([program, "train", str(job), f"--job.name={name}"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(run, folder, steps, limit):
    """Waits for the run; its losses. Raises Lost unless it ends well, with every step once, and
    leaves no process behind."""
    try:
        errors = run.communicate(timeout=limit)[1]
    except subprocess.TimeoutExpired:
        run.kill()
        raise Lost(f"it hangs: no end within {limit} s") from None
    if run.returncode != 0:
        raise Lost(f"exit code {run.returncode}: {errors}")
    lines = lines_of(folder / "metrics.jsonl")
    if [line["step"] for line in lines] != list(range(steps)):
        raise Lost(f"its steps are {[line['step'] for line in lines]}")
    end = time.monotonic() + 10
    while workers_of(run.pid):
        if time.monotonic() > end:
            raise Lost(f"processes {sorted(workers_of(run.pid).values())} are left")
        time.sleep(0.05)
    return [line["loss"] for line in lines]


def compare(losses, undisturbed, share=0.0):
    """Raises Lost if a loss differs from the undisturbed one by more than this share of it."""
    for step, (found, wanted) in enumerate(zip(losses, undisturbed)):
        if found is None or abs(found - wanted) > share * abs(wanted):
            raise Lost(f"the loss of step {step} is {found}, undisturbed {wanted}")
