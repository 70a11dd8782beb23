"""Pipeline and data parallel training of PyTorch modules by Tenuto.

A script makes a Pipeline and calls fit(); `tenuto launch -n N SCRIPT.py` starts it once for each
worker. docs/bring-your-model.md shows how.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._checkpoint import from_dcp, load_checkpoint, load_optimizer, to_dcp
    from ._model import initial_values
    from ._pipeline import Pipeline, Step
    from ._tokens import TokenFile

    __version__: str

__all__ = [
    "Pipeline",
    "Step",
    "TokenFile",
    "from_dcp",
    "initial_values",
    "load_checkpoint",
    "load_optimizer",
    "to_dcp",
]

# The module of each public name. It is imported when the name is used first: torch and the
# extension take long to load, and the program `tenuto` of a wheel starts through this package.
_HOMES = {
    "Pipeline": "._pipeline",
    "Step": "._pipeline",
    "TokenFile": "._tokens",
    "from_dcp": "._checkpoint",
    "initial_values": "._model",
    "load_checkpoint": "._checkpoint",
    "load_optimizer": "._checkpoint",
    "to_dcp": "._checkpoint",
}


def __getattr__(name: str) -> Any:
    if name != "__version__" and name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not `from . import`: that would ask this function for _extension.
    extension = importlib.import_module("._extension", __name__)
    if name == "__version__":
        value: Any = extension.built().VERSION
    else:
        extension.check()
        value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
