"""Limits on the size of files, functions, interfaces and inputs; checks of tools/tidy.py.

What is still beyond a limit is named in EXCEPTIONS. An entry that is not needed any more is a fault
itself, so the table only shrinks.
"""

from tidy_cpp import Scanner, past

FILE_LIMIT, PARAMETER_LIMIT, FACE_LIMIT = 600, 6, 10
# Files with a limit of their own: the loop of a step must be read in one sitting.
SHORTER = {"src/runtime/step_run.cc": 350}
# Structs that are one function's input, and how many fields each may have.
INPUTS = {"StepInput": 8}
TABLE = "tools/tidy_limits.py"

EXCEPTIONS = {
    "lengths": set(),
    "parameters": set(),
    "faces": set(),
    "inputs": set(),
}


def outside(tree, check, found):
    """The faults of `found`, {name: fault}, without an exception; exceptions without a fault."""
    allowed = EXCEPTIONS[check]
    yield from (fault for name, fault in found.items() if name not in allowed)
    if TABLE in tree.text:
        for name in sorted(allowed - set(found)):
            yield TABLE, 1, f"the exception {name} of {check} is not needed any more: remove it"


def check_lengths(tree):
    """Files are short."""
    found = {}
    for path in tree.paths():
        count, most = len(tree.lines(path)) - 1, SHORTER.get(path, FILE_LIMIT)
        if count > most:
            found[path] = (path, most, f"{count} lines: {most} at most")
    yield from outside(tree, "lengths", found)


def parameter_count(function):
    """How many parameters a Declaration of a function has."""
    words = function.bare
    opening = function.name_index()
    return separate(words[opening + 1 : past(words, opening, "(", ")") - 1])


def separate(words):
    """How many parts the commas of `words` separate, those within brackets left aside."""
    depth, count = 0, 1 if words and words != ["void"] else 0
    for word in words:
        depth += {"(": 1, "{": 1, "[": 1, "<": 1, ")": -1, "}": -1, "]": -1, ">": -1}.get(word, 0)
        count += word == "," and depth == 0
    return count


def check_parameters(tree):
    """Functions have few parameters: more belong into a struct with named fields."""
    found = {}
    for path in tree.paths(ends=(".h", ".cc")):
        for one in Scanner(tree.text[path]).read():
            count = parameter_count(one) if one.is_function() else 0
            if count > PARAMETER_LIMIT:
                found[f"{path} {one.name()}"] = (
                    path, one.first,
                    f"function {one.name()} has {count} parameters: {PARAMETER_LIMIT} at most")
    yield from outside(tree, "parameters", found)


def check_faces(tree):
    """Abstract classes have few virtual functions."""
    counts, found = {}, {}
    for path in tree.paths("src/", ends=(".h", ".cc")):
        for one in Scanner(tree.text[path]).read():
            if one.is_function() and "virtual" in one.words and "~" not in one.words:
                counts.setdefault((path, one.scope[0]), []).append(one)
    for (path, scope), functions in counts.items():
        abstract = any(one.words[-2:] == ["=", "0"] for one in functions)
        if abstract and len(functions) > FACE_LIMIT:
            found[f"{path} {scope[-1]}"] = (
                path, functions[0].first,
                f"{scope[-1]} has {len(functions)} virtual functions: {FACE_LIMIT} at most")
    yield from outside(tree, "faces", found)


def check_inputs(tree):
    """The structs of INPUTS have few fields."""
    counts, found = {}, {}
    for path in tree.paths("src/", ends=".h"):
        for one in Scanner(tree.text[path]).read():
            name = one.scope[0][-1] if one.scope[0] else ""
            if name in INPUTS and not one.is_function() and not one.is_type():
                counts.setdefault((path, name), []).append(one)
    for (path, name), fields in counts.items():
        count = sum(separate(one.bare) for one in fields)
        if count > INPUTS[name]:
            found[f"{path} {name}"] = (path, fields[0].first,
                                       f"{name} has {count} fields: {INPUTS[name]} at most")
    yield from outside(tree, "inputs", found)


LIMITS = {"lengths": check_lengths, "parameters": check_parameters, "faces": check_faces,
          "inputs": check_inputs}
