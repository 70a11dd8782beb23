"""Whether the extension fits this Python, this torch and this machine: if not, one sentence."""

from __future__ import annotations

import importlib
import os
import re
import sys
import sysconfig
from typing import Any

# Shared libraries by the beginning of their names, and the package of Debian that brings them.
_DEBIAN = (
    (("libprotobuf",), "libprotobuf-dev"),
    (("libgrpc", "libgpr", "libaddress_sorting", "libabsl", "libupb"), "libgrpc++-dev"),
    (("libucp", "libucs", "libuct", "libucm"), "libucx-dev"),
    (("libssl", "libcrypto"), "libssl-dev"),
    (("libz.",), "zlib1g-dev"),
)


def built() -> Any:
    """Return the module _built: VERSION, TORCH and SUFFIX of the build. ImportError: none."""
    try:
        return importlib.import_module("._built", __package__)
    except ModuleNotFoundError:
        raise ImportError(
            f"{os.path.dirname(__file__)} is the source of tenuto, not a built package: type "
            "`./run python` in its tree, or `pip install .`"
        ) from None


def check() -> None:
    """Import torch and the extension. ImportError with one sentence for what does not fit."""
    build = built()
    wanted = sysconfig.get_config_var("EXT_SUFFIX")
    if build.SUFFIX != wanted:
        raise ImportError(
            f"tenuto was built for another Python ({build.SUFFIX}, and {sys.executable} takes "
            f"{wanted}): type `pip install .` with this Python in tenuto's tree"
        )
    _check_torch(build.TORCH)
    try:
        importlib.import_module("._tenuto", __package__)
    except ImportError as error:
        # The sentence is all that a user needs; with the cause Python would print two tracebacks.
        raise ImportError(_sentence_of(error, build)) from None


def _check_torch(version: str) -> None:
    """Refuse a torch of another minor version: its C++ interface changes with each of them."""
    wanted = _minor(version)
    install = f"type pip install 'torch=={wanted}.*'"
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"tenuto needs torch {wanted}, and {sys.executable} has none: {install}"
        ) from None
    if _minor(torch.__version__) != wanted:
        raise ImportError(
            f"tenuto was built against torch {version}, and {sys.executable} has "
            f"{torch.__version__}: {install}, or build tenuto with this torch (pip install .)"
        )


def _minor(version: str) -> str:
    """Return "2.13" of "2.13.0+cpu"."""
    return ".".join(str(version).split(".")[:2])


def _sentence_of(error: ImportError, build: Any) -> str:
    """Return what is missing, and what to install, when the extension does not load."""
    folder = os.path.dirname(__file__)
    if isinstance(error, ModuleNotFoundError) and error.name == f"{__package__}._tenuto":
        return (
            f"the extension _tenuto{build.SUFFIX} is missing in {folder}: install tenuto again, or "
            "type ./run build in its tree"
        )
    missing = re.match(r"(lib\S+): cannot open shared object file", str(error))
    if missing is None:
        return (
            f"the extension in {folder} does not load ({error}): a library is not the one that "
            "tenuto was built with; type `pip install .` again in tenuto's tree"
        )
    for beginnings, package in _DEBIAN:
        if missing[1].startswith(beginnings):
            return (
                f"tenuto needs the shared library {missing[1]}, which is not on this machine: "
                f"install it (on Debian: apt-get install {package})"
            )
    return (
        f"tenuto needs the shared library {missing[1]}, which is not on this machine: install the "
        "packages that docs/dependencies.md lists"
    )
