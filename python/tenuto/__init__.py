"""Pipeline and data parallel training of PyTorch modules by Tenuto.

A script makes a Pipeline and calls fit(); `tenuto launch -n N SCRIPT.py` starts it once for each
worker. docs/bring-your-model.md shows how. simulate(), plan(), schedule(), collective() and
analyze() are the program's tools for notebooks: docs/notebooks.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._checkpoint import from_dcp, load_checkpoint, load_optimizer, to_dcp
    from ._model import initial_values
    from ._pipeline import Pipeline, Step
    from ._tokens import TokenFile
    from ._tools import ToolResult, analyze, collective, plan, schedule, simulate

    __version__: str

__all__ = [
    "Pipeline",
    "Step",
    "TokenFile",
    "ToolResult",
    "analyze",
    "collective",
    "from_dcp",
    "initial_values",
    "load_checkpoint",
    "load_optimizer",
    "plan",
    "schedule",
    "simulate",
    "to_dcp",
]

# The module of each public name. It is imported when the name is used first: torch and the
# extension take long to load, and the program `tenuto` of a wheel starts through this package.
_HOMES = {
    "Pipeline": "._pipeline",
    "Step": "._pipeline",
    "TokenFile": "._tokens",
    "ToolResult": "._tools",
    "analyze": "._tools",
    "collective": "._tools",
    "from_dcp": "._checkpoint",
    "initial_values": "._model",
    "load_checkpoint": "._checkpoint",
    "load_optimizer": "._checkpoint",
    "plan": "._tools",
    "schedule": "._tools",
    "simulate": "._tools",
    "to_dcp": "._checkpoint",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None and name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home != "._tools":  # the tools need no torch, which takes long to load
        # Not `from . import`: that would ask this function for _extension.
        extension = importlib.import_module("._extension", __name__)
        if home is not None:
            extension.check()
    if home is None:
        value: Any = extension.built().VERSION
    else:
        value = getattr(importlib.import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
