#!/usr/bin/env python3
"""Searches a model of recovery with spin: every instance to its end, and every bug until found.

  search.py replay [--all]

An instance passes when no assertion fails, no state is a deadlock and, if it is under "cycles", no
execution returns to an earlier state (so none goes on for ever). A bug is a switch that breaks one
rule; the search must find a state that the bug makes wrong. --all adds the instances that take
minutes or more than 2 GiB. Without spin, or a C compiler, the exit code is 77: skipped.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

# Of each model: instances, those that only --all runs, those searched for cycles, and bugs, each
# with the instance in which it must be found.
MODELS = {
    "replay": {
        "instances": [
            "",
            "KILLS=1",
            "KILLS=2",
            "KILLS=1 RESTARTS=1",
            "STEPS=1 WRONG=1 RESTARTS=1",
            "N=4 STEPS=1 KILLS=1",
            "STEPS=3 KILLS=1",
        ],
        "long": ["WRONG=1", "STEPS=1 KILLS=1 WRONG=1"],
        "cycles": ["KILLS=1"],
        "bugs": {
            "FENCE": "WRONG=1",
            "UNDO": "KILLS=1",
            "PHASE": "KILLS=1",
            "FIRST": "KILLS=1",
            "AHEAD": "KILLS=1",
            "KEEPACC": "KILLS=1",
            "JOURNAL": "RESTARTS=1",
            "DECISION": "KILLS=1 RESTARTS=1",
        },
    },
    "partial": {
        "instances": ["", "KILLS=1", "KILLS=2", "WRONG=1", "STEPS=3 KILLS=1"],
        "long": ["STEPS=1 KILLS=1 WRONG=1", "STEPS=3 KILLS=2"],
        "cycles": ["KILLS=1"],
        "bugs": {
            "INPLACE": "KILLS=1",
            "TOTAL": "KILLS=1",
            "STALE": "WRONG=1",
            "NOKEEP": "KILLS=2",
            "NOREDO": "KILLS=1",
            "FREETOTAL": "KILLS=1",
        },
    },
    "join": {
        "instances": ["ABORTS=2", "KILLS=1 ABORTS=2", "KILLS=2 ABORTS=2"],
        "long": [],
        "cycles": ["KILLS=1 ABORTS=2"],
        "bugs": {"UNCOMMITTED": "ABORTS=1", "NOTAG": ""},
    },
}


def search(model, settings, cycles=False, bug=None):
    """Runs one search; returns (wrong, states, transitions, depth, what was violated). The states
    of instances that take minutes are compressed, which takes half as much time again. A bug is
    found after few states, so its search is compiled without optimization."""
    options = ["-D" + each for each in settings.split()] + (["-D" + bug] if bug else [])
    with tempfile.TemporaryDirectory() as folder:
        for source in HERE.glob("*.pml"):
            shutil.copy(source, folder)

        def run(command):
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

        made = run(["spin", "-a", *options, model + ".pml"])
        if not pathlib.Path(folder, "pan.c").exists():
            said = made.stdout + made.stderr
            sys.exit(f"search: spin cannot read {model}.pml {settings}:\n{said}")
        mode = "-DNP" if cycles else "-DSAFETY"
        compressed = ["-DCOLLAPSE"] if settings in MODELS[model]["long"] else []
        made = run(["cc", "-O0" if bug else "-O2", "-w", mode, *compressed, "-DNOREDUCE", "-DMEMLIM=4000",
                    "-o", "pan", "pan.c"])
        if made.returncode != 0:
            sys.exit(f"search: the search of {model} {settings} does not compile:\n{made.stderr}")
        text = run(["./pan", "-m5000", *(["-l"] if cycles else [])]).stdout
    found = re.search(r"depth reached (\d+), errors: (\d+)\n\s*(\d\S*) states, stored.*?"
                      r"\n\s*(\d\S*) transitions", text, re.DOTALL)
    if not found or re.search(r"max search depth too small|out of memory|resource limit", text):
        sys.exit(f"search: {model} {settings} came to no end:\n{text}")
    violated = re.search(r"^pan:\d+: (.*)", text, re.MULTILINE)
    depth, wrong, states, transitions = (int(float(number)) for number in found.groups())
    return wrong > 0, states, transitions, depth, violated.group(1)[:60] if violated else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--all", action="store_true", help="also what takes minutes")
    parser.add_argument("--part", default="1/1", metavar="K/N",
                        help="only the searches number K, K + N, K + 2 N, ...")
    arguments = parser.parse_args()
    part, parts = (int(number) for number in arguments.part.split("/"))
    for program in ("spin", "cc"):
        if not shutil.which(program):
            print(f"skipped: there is no {program} here")
            return 77
    model = MODELS[arguments.model]
    failures = 0
    print(f"{arguments.model + '.pml':34} {'states':>10} {'transitions':>12} {'depth':>6}")

    def line(name, result, good, said):
        nonlocal failures
        failures += 0 if good else 1
        print(f"{name:34} {result[1]:10,} {result[2]:12,} {result[3]:6}  {said}", flush=True)

    searches = [(settings, False, None) for settings in
                model["instances"] + (model["long"] if arguments.all else [])]
    searches += [(settings, True, None) for settings in model["cycles"]]
    searches += [(settings, False, bug) for bug, settings in model["bugs"].items()]
    for settings, cycles, bug in searches[part - 1::parts]:
        result = search(arguments.model, settings, cycles, bug)
        if bug:
            line(f"{bug} {settings}".strip(), result, result[0],
                 f"found: {result[4]}" if result[0] else "NOT FOUND")
        else:
            line(f"{settings}, ways back" if cycles else settings or "undisturbed", result,
                 not result[0], f"WRONG: {result[4]}" if result[0] else
                 "none" if cycles else "right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
