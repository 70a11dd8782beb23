#!/usr/bin/env python3
"""Checks the tree against the rules of the project: docs/testing.md says which and why.

    tools/tidy.py [ROOT] [--only CHECK[,CHECK...]] [--list]

Prints one line per fault, FILE:LINE: sentence, and ends with 1 when there is one.
"""

import ast
import os
import re
import sys

from tidy_cpp import Scanner, tokens_of
from tidy_limits import LIMITS
from tidy_words import retired_words

# The folders that each folder of src/ may include. A folder that is not listed may not exist.
SEES = {
    "base": "",
    "ir": "base",
    "transport": "base",
    "world": "ir base",
    "collective": "ir base",
    "sim": "world collective ir base",
    "monitor": "world ir base",
    "runtime": "world collective ir transport base",
    "communicator": "runtime world collective ir transport base",
    "rehearsal": "runtime world collective ir transport base",
    "protocol": "world ir base",
    "worker": "parameter_server sync sim protocol rehearsal runtime world collective ir transport "
    "base",
    "plan": "sim collective world ir base",
    "engine": "runtime world ir base",
    "adapt": "plan sim collective world ir base",
    "remedy": "adapt plan sim world ir base",
    "outlook": "adapt plan sim world ir base",
    "sync": "sim world ir base",
    "parameter_server": "sync transport sim world ir base",
    "page": "transport base",
    "control": "protocol remedy adapt sync plan monitor sim world ir transport base",
    "run": "page parameter_server control protocol remedy adapt sync plan monitor sim world ir "
    "transport base",
    "analysis": "sim world ir base",
    "app": "analysis run worker page control protocol rehearsal communicator parameter_server sync "
    "outlook remedy adapt engine plan runtime monitor sim collective world transport ir base",
}
# Torch's headers: of src/, only src/engine may include them, even though src/app links src/engine.
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")

LINE_LIMIT, FUNCTION_LIMIT, EXAMPLE_LIMIT = 100, 70, 100
CODE = (".h", ".cc")
WRITTEN = CODE + (".py", ".cmake", ".txt", ".md", ".toml", ".proto", ".sh", ".sched", ".supp")
# No limit on line length: programs write this text, or it must be one line.
UNLIMITED = (".md", ".golden", ".sched", ".json", ".jsonl", ".csv")


class Tree:
    """The files of the tree, read once."""

    def __init__(self, root):
        self.root = root
        self.text = {}
        for place, folders, files in os.walk(root):
            relative = os.path.relpath(place, root)
            folders[:] = sorted(f for f in folders if not self.skipped(relative, f))
            for name in sorted(files):
                path = os.path.normpath(os.path.join(relative, name))
                if name.endswith(WRITTEN) or path in ("run", ".ci/run"):
                    with open(os.path.join(place, name), encoding="utf-8") as file:
                        self.text[path] = file.read()

    @staticmethod
    def skipped(place, folder):
        if place == ".":
            return folder in ("build", "runs", ".venv", ".git") or folder.startswith("build-")
        return folder == "__pycache__"

    def paths(self, *starts, ends=""):
        return [p for p in self.text if p.endswith(ends) and (not starts or p.startswith(starts))]

    def lines(self, path):
        return self.text[path].split("\n")


# ---- the checks ------------------------------------------------------------------------------


def check_direction(tree):
    """A folder includes and links only the folders that it may see."""
    for path in tree.paths("src/", ends=CODE):
        folder = path.split("/")[1]
        for number, line in enumerate(tree.lines(path), 1):
            match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            if not match:
                continue
            target = match.group(1).split("/")[0]
            if "/" not in match.group(1):
                yield path, number, f'include "{match.group(1)}" is not written whole from src/'
            elif target not in SEES:
                continue
            elif target != folder and target not in SEES.get(folder, "").split():
                yield path, number, f"{folder} may not see {target} ({SEES.get(folder, '')})"
    for path in tree.paths("src/", ends="CMakeLists.txt"):
        folder = path.split("/")[1]
        if folder not in SEES:
            yield path, 1, f"folder {folder} is not in the table of tools/tidy.py"
        match = re.search(r"tenuto_library\((.*?)\)", tree.text[path], re.DOTALL)
        links = re.search(r"\bLINKS\b([^A-Z)]*)", match.group(1)) if match else None
        for target in links.group(1).split() if links else []:
            known = target in SEES and target != folder
            if known and target not in SEES.get(folder, "").split():
                yield path, 1, f"{folder} may not link {target}"


def check_torch(tree):
    """Torch's headers are included in src/engine, its tests and benchmarks, and the package."""
    for path in tree.paths(ends=CODE):
        allowed = path.startswith(("src/engine/", "tests/engine/", "tests/truth/", "bench/",
                                   "python/src/"))
        for number, line in enumerate(tree.lines(path), 1):
            match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if match and TORCH.match(match.group(1)) and not allowed:
                yield path, number, f"includes {match.group(1)}: only src/engine knows torch"


def check_size(tree):
    """Lines, functions and examples are short."""
    for path in tree.paths():
        lines = tree.lines(path)
        if not path.endswith(UNLIMITED) and "/golden/" not in path:
            for number, line in enumerate(lines, 1):
                if len(line) > LINE_LIMIT and not re.search(r"https?://\S{60}", line):
                    yield path, number, f"{len(line)} columns: {LINE_LIMIT} at most"
        if path.startswith("examples/") and len(lines) - 1 >= EXAMPLE_LIMIT:
            yield path, 1, f"{len(lines) - 1} lines: an example has fewer than {EXAMPLE_LIMIT}"
    for path in tree.paths(ends=CODE):
        for found in Scanner(tree.text[path]).read():
            length = found.last - found.first + 1
            if found.is_function() and length > FUNCTION_LIMIT:
                yield path, found.first, function_fault(found.name(), length)
    for path in tree.paths(ends=".py"):
        for node in ast.walk(ast.parse(tree.text[path])):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LIMIT:
                    yield path, node.lineno, function_fault(node.name, length)


def function_fault(name, length):
    return f"function {name} has {length} lines: {FUNCTION_LIMIT} at most"


def listed_in(tree, path):
    """The CMakeLists.txt above `path`, and whether it names the file."""
    place = os.path.dirname(path)
    while place and os.path.join(place, "CMakeLists.txt") not in tree.text:
        place = os.path.dirname(place)
    lists = os.path.join(place, "CMakeLists.txt")
    text = re.sub(r"#[^\n]*", "", tree.text.get(lists, ""))
    text = text.replace("${CMAKE_CURRENT_SOURCE_DIR}/", "")
    words = re.split(r"[\s()\"]+", text)
    name = os.path.relpath(path, place or ".")
    stem = os.path.splitext(name)[0]
    # A benchmark is listed by its stem, a case of Python's unittest as module.Class.
    by_stem = path.startswith("bench/") and stem in words
    by_stem |= path.endswith(".py") and any(word.startswith(stem + ".") for word in words)
    return lists, name in words or by_stem


def check_built(tree):
    """Every source is in a CMakeLists.txt, every header included, every test folder visited."""
    included = set()
    for path in tree.paths(ends=CODE):
        included.update(re.findall(r'#\s*include\s*"([^"]+)"', tree.text[path]))
    for path in tree.paths("src/", "tests/", "bench/", "fuzz/", ends=(".cc", ".proto")):
        lists, listed = listed_in(tree, path)
        if not listed:
            yield path, 1, f"is not built: {lists} does not list it"
    for path in tree.paths("src/", "tests/", "fuzz/", ends=".h"):
        name = path.split("/", 1)[1] if path.startswith("src/") else os.path.basename(path)
        if not any(include == name or path.endswith("/" + include) for include in included):
            yield path, 1, "is included nowhere"
    visited = re.sub(r"#[^\n]*", "", tree.text.get("tests/CMakeLists.txt", ""))
    for path in tree.paths("tests/", ends="/CMakeLists.txt"):
        folder = path.split("/")[1]
        if len(path.split("/")) == 3 and folder not in re.split(r"[\s()]+", visited):
            yield path, 1, f"tests/CMakeLists.txt does not visit {folder}"
    for path in tree.paths("tests/", ends="_test.py"):
        lists, listed = listed_in(tree, path)
        if not listed:
            yield path, 1, f"is not run: {lists} does not list it"


def needs_comment(found, enclosing):
    """True for what a header offers: types, functions, aliases and constants that are public."""
    names, access = found.scope
    if "(anonymous)" in names or "(hidden)" in names or access in ("private", "protected"):
        return False
    if not found.bare or found.bare[0] in ("friend", "static_assert", "extern", "namespace"):
        return False
    words = found.bare
    if found.is_type():
        return found.body
    if words[0] == "using":
        return "=" in words
    if not found.is_function():
        return access is None and ("constexpr" in words or "const" in words)
    if "operator" in words or "override" in words or words[-2:] in (["=", "default"],
                                                                     ["=", "delete"]):
        return False
    name = found.name()
    return name != enclosing and "~" not in words[:3]


def check_documented(tree):
    """A comment stands directly above every public declaration of a header."""
    for path in tree.paths("src/", ends=".h"):
        lines = tree.lines(path)
        if not lines[0].startswith("//"):
            yield path, 1, "the first line is not a comment that says what the header is for"
        before, said = None, False
        for found in sorted(Scanner(tree.text[path]).read(), key=lambda f: f.first):
            names = found.scope[0]
            above = lines[found.first - 2].strip() if found.first > 1 else ""
            documented = above.startswith("//") or above.endswith("*/")
            beside = re.search(r";\s+//", lines[found.first - 1])
            documented |= found.first == found.last and beside is not None
            constant = "constexpr" in found.words and not found.is_function()
            if before is not None and above and said and before.scope == found.scope:
                # Overloads and functions with the same result share the comment of the first.
                alike = found.is_function() and before.result_type() == found.result_type()
                documented |= alike or before.name() == found.name()
            documented |= constant and bool(above) and said
            if not documented and needs_comment(found, names[-1] if names else ""):
                yield path, found.first, f"{found.name()} has no comment directly above it"
            before, said = found, documented


def check_words(tree):
    """No reminders, no exceptions thrown, no retired words."""
    yield from retired_words(tree)
    reminder = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
    for path in tree.paths():
        for number, line in enumerate(tree.lines(path), 1):
            if reminder.search(line):
                yield path, number, "a reminder: do it, or describe it in the tracker"
    for path in tree.paths("src/", ends=CODE):
        for word, number in tokens_of(tree.text[path]):
            if word == "throw":
                yield path, number, "throws: return a Result instead"


def anchor(title):
    """The link target that a title gets."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def prose(lines):
    """(number, line) outside of code blocks."""
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def check_documents(tree):
    """One title each, and every relative link leads somewhere."""
    titles = {}
    for path in tree.paths(ends=".md"):
        heads = [(n, line) for n, line in prose(tree.lines(path)) if re.match(r"#+ ", line)]
        titles[path] = {anchor(line.lstrip("#")) for _, line in heads}
        count = sum(1 for _, line in heads if line.startswith("# "))
        if count != 1:
            yield path, 1, f"has {count} titles: expected one line that starts with '# '"
    for path in tree.paths(ends=".md"):
        for number, line in prose(tree.lines(path)):
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, part = target.partition("#")
                beside = os.path.join(os.path.dirname(path), file)
                whole = os.path.normpath(beside) if file else path
                if not os.path.exists(os.path.join(tree.root, whole)):
                    yield path, number, f"link to {target}: there is no {whole}"
                elif part and whole in titles and part not in titles[whole]:
                    yield path, number, f"link to {target}: {whole} has no such title"


# What a document writes in `backticks` and the tree must have: paths, and names of two words or
# more.
PATH = re.compile(r"(?!build/)(?:\w[\w.-]*/)+\w[\w.-]*$")
NAME = re.compile(r"\b(?:[a-z]+(?:_[a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,})\b(?!\*|\.\.\.)")


def check_names(tree):
    """The paths and the code names of documents exist; NAME, FOLDER and the like stand for any."""
    known, paths = set(), set()
    for path, text in tree.text.items():
        lines = set(text.split("\n"))
        if path.endswith(".md"):
            lines -= {line for _, line in prose(tree.lines(path))}
        known.update(re.findall(r"\w+", "\n".join(lines)))
    for place, folders, files in os.walk(tree.root):
        relative = os.path.relpath(place, tree.root)
        folders[:] = [f for f in folders if not tree.skipped(relative, f)]
        for path in (os.path.normpath(os.path.join("/", relative, f)) for f in folders + files):
            paths.update(end for i, c in enumerate(path) if c == "/"
                         for end in (path[i + 1:], os.path.splitext(path[i + 1:])[0]))
            known.add(os.path.basename(path))
    for path in tree.paths(ends=".md"):
        for number, line in prose(tree.lines(path)):
            for span in re.findall(r"`([^`]+)`", line):
                if PATH.match(span) and span not in paths and not re.search(r"[A-Z]{4}", span):
                    yield path, number, f"{span}: there is no such file"
                for name in NAME.findall(span):
                    if name not in known:
                        yield path, number, f"{name}: no code has this name"


CHECKS = {
    "direction": check_direction,
    "torch": check_torch,
    "size": check_size,
    "built": check_built,
    "documented": check_documented,
    "words": check_words,
    "documents": check_documents,
    "names": check_names,
    **LIMITS,
}


def main(arguments):
    chosen, root = list(CHECKS), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    while arguments:
        argument = arguments.pop(0)
        if argument == "--list":
            print("\n".join(CHECKS))
            return 0
        if argument == "--only" and arguments:
            chosen = arguments.pop(0).split(",")
        elif not argument.startswith("-") and os.path.isdir(argument):
            root = argument
        else:
            print(f"tidy: {argument}: expected a folder, --list or --only CHECK", file=sys.stderr)
            return 2
    unknown = [name for name in chosen if name not in CHECKS]
    if unknown:
        print(f"tidy: no check {unknown[0]}; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    tree = Tree(root)
    faults = sorted({fault for name in chosen for fault in CHECKS[name](tree)})
    for path, line, sentence in faults:
        print(f"{path}:{line}: {sentence}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
