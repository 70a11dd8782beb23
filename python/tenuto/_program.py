"""The program `tenuto`: where it is, and how that of a wheel starts."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Become the program tenuto. It takes torch, and the Python of scripts, from this Python."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "tenuto")
    os.environ.setdefault("TENUTO_PYTHON", sys.executable)
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(
            f"tenuto: cannot start {program} ({error.strerror}): install tenuto again with "
            "pip install, or take the program of the build tree"
        )


def find_program() -> str:
    """Return the path of the program: that of the wheel, the build tree or the installation.

    Errors: RuntimeError with a sentence when it is in none of them, nor in the PATH.
    """
    import shutil  # here, so that main() starts at once

    package = os.path.dirname(os.path.abspath(__file__))
    above = os.path.dirname(os.path.dirname(package))
    places = (
        os.path.join(package, "bin", "tenuto"),
        os.path.join(above, "src", "app", "tenuto"),
        os.path.join(os.path.dirname(os.path.dirname(above)), "bin", "tenuto"),
    )
    for path in places:
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("tenuto")
    if found is None:
        raise RuntimeError(
            f"the program tenuto is not at {', '.join(places)} nor in the PATH: put its folder "
            "into the PATH"
        )
    return found
