#!/usr/bin/env python3
"""Writes docs/python-api.md from the docstrings of the package tenuto.

    tools/api_reference.py           writes the file
    tools/api_reference.py --check   says whether it is as this would write it

Only reads the sources, so neither torch nor the built package is needed.
"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "tenuto"
FILE = ROOT / "docs" / "python-api.md"
HEAD = """# The Python package

All that `import tenuto` offers, as its docstrings say it; `help(tenuto.Pipeline)` shows the same.
How the parts go together: [bring your own model](bring-your-model.md), [models of Hugging
Face](huggingface.md), [notebooks](notebooks.md). `tools/api_reference.py` writes this page.
"""


def functions_in(nodes):
    """Those that are public."""
    return [node for node in nodes
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]


def is_property(function):
    return any(isinstance(one, ast.Name) and one.id == "property"
               for one in function.decorator_list)


def signature_of(name, function):
    """A line for each parameter, as it stands in the source, without self."""
    arguments = function.args
    plain = [one for one in (*arguments.posonlyargs, *arguments.args) if one.arg != "self"]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    lines = [parameter(one, default) for one, default in zip(plain, defaults)]
    if arguments.vararg:
        lines.append(f"*{ast.unparse(arguments.vararg)}")
    elif arguments.kwonlyargs:
        lines.append("*")
    lines += [parameter(one, default)
              for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        lines.append(f"**{ast.unparse(arguments.kwarg)}")
    returns = ""
    if function.returns is not None and function.name != "__init__":
        returns = f" -> {ast.unparse(function.returns)}"
    short = f"{name}({', '.join(lines)}){returns}"
    if len(short) < 80:
        return [short]
    return [f"{name}(", *(f"    {line}," for line in lines), f"){returns}"]


def parameter(one, default):
    return ast.unparse(one) + ("" if default is None else f" = {ast.unparse(default)}")


def entry(level, title, node, signature=()):
    text = ast.get_docstring(node)
    if text is None:
        sys.exit(f"{title} has no docstring")
    lines = [f"    {line}".rstrip() for line in text.splitlines()]
    block = ["```python", *signature, "```", ""] if signature else []
    return [f"{'#' * level} {title}", "", *block, *lines, ""]


def of_function(level, name, function):
    signature = () if is_property(function) else signature_of(name, function)
    return entry(level, name, function, signature)


def of_class(name, node):
    """The class, its fields if it is a named tuple, and its public methods."""
    made = next((one for one in node.body
                 if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    signature = signature_of(f"tenuto.{name}", made) if made else ()
    lines = entry(2, f"tenuto.{name}", node, signature)
    fields = [f"    {ast.unparse(one)}" for one in node.body if isinstance(one, ast.AnnAssign)]
    lines += [*fields, ""] if fields else []
    for function in functions_in(node.body):
        lines += of_function(3, f"{name}.{function.name}", function)
    return lines


def of_module(name):
    return ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8")).body


def homes():
    """The module of each public name, as the package says it."""
    for node in of_module("__init__"):
        if isinstance(node, ast.Assign) and node.targets[0].id == "_HOMES":
            return {name: home.lstrip(".") for name, home in ast.literal_eval(node.value).items()}
    sys.exit("tenuto/__init__.py has no _HOMES")


def types():
    """The public names of types, with their assignments, such as `Config = Union[...]`."""
    found = {}
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
                name = node.targets[0].id
                if name[0].isupper() and name.lower() != name and not name.isupper():
                    found[name] = ast.unparse(node)
    return sorted(found.items())


def page():
    lines = HEAD.splitlines() + [""]
    for name, home in sorted(homes().items(), key=lambda each: (each[0] != "Pipeline", each[0])):
        node = next(one for one in of_module(home) if getattr(one, "name", None) == name)
        if isinstance(node, ast.ClassDef):
            lines += of_class(name, node)
        else:
            lines += of_function(2, f"tenuto.{name}", node)
    for function in functions_in(of_module("huggingface")):
        lines += of_function(2, f"tenuto.huggingface.{function.name}", function)
    text = "\n".join(lines)
    used = [line for name, line in types() if re.search(rf"\b{name}\b", text)]
    lines += ["## Types", "", "Names of types in the signatures above.", "", "```python", *used,
              "```"]
    return "\n".join(lines).rstrip() + "\n"


def main():
    if sys.argv[1:] == ["--check"]:
        if FILE.read_text(encoding="utf-8") != page():
            sys.exit("docs/python-api.md does not have the present docstrings: run "
                     "tools/api_reference.py")
        return
    FILE.write_text(page(), encoding="utf-8")


main()
