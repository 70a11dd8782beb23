"""The program `tenuto` of a wheel: starts the one that lies in the package."""

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
