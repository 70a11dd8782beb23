"""The tools of the program tenuto as functions, with pictures in notebooks."""

from __future__ import annotations

import base64
import html
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional, Union

from ._program import find_program

Path = Union[str, "os.PathLike[str]"]
Value = Union[str, float, "os.PathLike[str]"]  # a float may be an int or a bool
Flag = Union[Value, Iterable[Value], Mapping[Any, Value], None]

# Flags without a value: True gives them. Other flags that are True or False get "yes" or "no".
_SWITCHES = frozenset({"gantt", "step_by_step"})
# Flags that name files to write: one run of the program writes them, and later ones do not.
_WRITTEN = frozenset({"html", "out", "page", "picture", "plan", "svg", "trace"})
# Exit codes: 2 is bad input; 3 says that a plan or a schedule is refused.
_USAGE, _REFUSED = 2, 3
_HEIGHT = 640  # of a page in a notebook, in pixels


class ToolResult(Mapping[str, Any]):
    """What a tool has found: a mapping with the keys of the JSON object that the program prints.

    print() shows the text that the program prints for people, and a notebook shows its picture.
    The program runs once more for each of the two, when it is asked for first, with the same flags
    and in the folder of the first call.
    """

    def __init__(self, command: str, words: list[str], flags: Mapping[str, Flag]) -> None:
        self._command = command
        self._words = [*command.split(" "), *words]
        self._flags = dict(flags)
        self._folder = os.getcwd()
        self._text: Optional[str] = None
        self._html: Optional[str] = None
        printed = self._run(["--json", *_words_of(self._flags)])
        try:
            self._found: dict[str, Any] = json.loads(printed)
        except ValueError as error:
            raise RuntimeError(f"tenuto {command} has printed no JSON: {error}") from None

    def __getitem__(self, key: str) -> Any:
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        words = " ".join(["tenuto", *self._words, *_words_of(self._flags)])
        return f"<{words}: {', '.join(self._found)}>"

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """What the program prints for people."""
        if self._text is None:
            self._text = self._run(_words_of(self._repeated()))
        return self._text

    def _repr_html_(self) -> str:
        """Return the picture for a notebook, or the text where the command has none."""
        if self._html is None:
            made = self._picture()
            self._html = f"<pre>{html.escape(self.text)}</pre>" if made is None else made
        return self._html

    def _repeated(self) -> dict[str, Flag]:
        """Return the flags without those that write files."""
        written = _WRITTEN | ({"to"} if self._command == "plan" else set())
        return {name: value for name, value in self._flags.items() if name not in written}

    def _picture(self) -> Optional[str]:
        """Have the program write its page or its picture. None: the command has none."""
        flag = _picture_flag(self._command, self._flags)
        if flag is None or self.get("ok") is False:
            return None
        with tempfile.TemporaryDirectory(prefix="tenuto-") as folder:
            path = os.path.join(folder, "picture")
            self._run(["--json", *_words_of({**self._repeated(), flag: path})])
            with open(path, encoding="utf-8") as file:
                content = file.read()
        if flag == "page":
            # The page has scripts. Without allow-same-origin they cannot reach the notebook.
            return (
                f'<iframe title="tenuto {html.escape(self._command)}" sandbox="allow-scripts" '
                f'style="width: 100%; height: {_HEIGHT}px; border: 0" '
                f'srcdoc="{html.escape(content)}"></iframe>'
            )
        data = base64.b64encode(content.encode()).decode()
        return (
            f'<img alt="tenuto {html.escape(self._command)}" style="max-width: 100%" '
            f'src="data:image/svg+xml;base64,{data}">'
        )

    def _run(self, words: list[str]) -> str:
        """Run the program, and return what it prints."""
        ended = subprocess.run(
            [find_program(), *self._words, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            cwd=self._folder,
            check=False,
        )
        sentence = ended.stderr.strip()
        if ended.returncode == 0:
            if sentence:
                print(sentence, file=sys.stderr)
            return ended.stdout
        # A refusal is what a check has found: with --json it is on stdout.
        if ended.returncode == _REFUSED and self._command.endswith(" check"):
            return ended.stdout or sentence
        if ended.returncode in (_USAGE, _REFUSED):
            raise ValueError(sentence)
        raise RuntimeError(
            sentence or f"tenuto {self._command} has ended with exit code {ended.returncode}"
        )


def simulate(file: Optional[Path] = None, **flags: Flag) -> ToolResult:
    """Predict how long a step takes (`tenuto simulate`): simulate(stages=4, slow_link={0: 20}).

    file   a job file or a schedule's file; without it the flags describe the job
    flags  those of `tenuto simulate --help`, with "_" for "-". A list is joined by commas, and a
           mapping becomes "key:value": slow_link={0: 20, 2: 5} is --slow-link=0:20,2:5.

    Times in the result are in ms, as the names of its keys say.

    Errors: ValueError with the program's sentence for a flag or a file that does not fit, or a plan
    that is refused; RuntimeError when the program is not found or fails.
    """
    return ToolResult("simulate", _file_of(file), flags)


def plan(**flags: Flag) -> ToolResult:
    """Find the layers and devices of each stage: plan(chain="a.chain", cluster="c.json", micros=8).

    Runs `tenuto plan`. Flags and errors are as for simulate(); to=("torch", folder) writes what
    PyTorch runs.
    """
    return ToolResult("plan", [], flags)


def schedule(file: Optional[Path] = None, *, action: str = "show", **flags: Flag) -> ToolResult:
    """Show, check, convert or list schedules: schedule(order="zb-h1", stages=4, micros=6).

    file    a schedule's text, a plan or PyTorch's CSV; without it the flags describe the schedule
    action  a command of `tenuto schedule`: "show", "check", "convert" or "list"

    The result of a check has `ok`, and the `reason` when it is false. Flags and errors are as for
    simulate().
    """
    _expect_action(action, "show", "check", "convert", "list")
    return ToolResult(f"schedule {action}", _file_of(file), flags)


def collective(file: Optional[Path] = None, *, action: str = "show", **flags: Flag) -> ToolResult:
    """Show, check, price or list all-reduce algorithms: collective(algorithm="ring", members=4).

    file    a procedure's text; without it the flags describe the algorithm
    action  a command of `tenuto collective`: "show", "check", "price" or "list". In a price, the
            late member 3 is late={3: 20}, in ms.

    Flags and errors are as for simulate().
    """
    _expect_action(action, "show", "check", "price", "list")
    return ToolResult(f"collective {action}", _file_of(file), flags)


def analyze(trace: Path, **flags: Flag) -> ToolResult:
    """Find who slowed a recorded run, by how much, and what would help (`tenuto analyze`).

    trace  a trace file (JSON, plain or gzip), a folder of traces, or a run

    Flags and errors are as for simulate().
    """
    return ToolResult("analyze", _file_of(trace), flags)


def _expect_action(action: str, *known: str) -> None:
    if action not in known:
        raise ValueError(f"action is {action!r}: expected one of {', '.join(known)}")


def _file_of(file: Optional[Path]) -> list[str]:
    return [] if file is None else [os.fspath(file)]


def _picture_flag(command: str, flags: Mapping[str, Flag]) -> Optional[str]:
    """Return the flag with which a command writes a page or a picture; None: it has none."""
    if command == "simulate" and flags.get("days") is not None:
        return "picture"
    if command == "simulate" and flags.get("sync") is not None:
        return None
    pages = {"simulate": "page", "plan": "page", "schedule show": "page"}
    return {**pages, "collective show": "svg", "analyze": "picture"}.get(command)


def _words_of(flags: Mapping[str, Flag]) -> list[str]:
    """Return keywords as words of a command line."""
    words = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if name in _SWITCHES and isinstance(value, bool):
            words += [flag] if value else []
        elif isinstance(value, (str, bool, int, float, os.PathLike)):
            words.append(f"{flag}={_word(value)}")
        elif isinstance(value, Mapping):
            pairs = (f"{_word(key)}:{_word(one)}" for key, one in value.items())
            words.append(f"{flag}={','.join(pairs)}")
        elif name == "to":  # takes two words, and not a list
            words += [flag, *map(_word, value)]
        else:
            words.append(f"{flag}={','.join(map(_word, value))}")
    return words


def _word(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
