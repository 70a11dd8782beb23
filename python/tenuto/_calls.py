"""The calls of fit() and evaluate() of a script that take part in a run, in their order.

Workers live for one run. So where `tenuto launch` has started a script, and the script calls
evaluate() after fit(), the workers end, and the script is started anew: the calls that are done
return at once what they have returned before.
"""

from __future__ import annotations

import json
import os
from typing import NoReturn, Optional

# What the calls of this process have returned, those of earlier starts included.
_returned: list[Optional[float]] = []
_runs = 0


def is_done() -> bool:
    """Return whether the next call has been done by an earlier start of this script."""
    return len(_returned) < len(_done_before())


def again() -> Optional[float]:
    """Return what the next call has returned in an earlier start."""
    value = _done_before()[len(_returned)]
    _returned.append(value)
    return value


def note(value: Optional[float]) -> None:
    """Keep what a call returns: None for fit(), a loss for evaluate()."""
    _returned.append(value)


def note_run() -> None:
    """Count a run in which this process takes part from now on."""
    global _runs
    _runs += 1


def runs() -> int:
    """Return in how many runs this process has taken part."""
    return _runs


def is_launched() -> bool:
    """Return whether a launcher waits for a further call once a run is done."""
    return "TENUTO_NEXT" in os.environ


def end_and_start_anew() -> NoReturn:
    """End this process, and have the launcher start the script for its next call.

    Raises RuntimeError when the launcher is on another host.
    """
    path = os.environ["TENUTO_NEXT"]
    own = f"{path}.{os.getpid()}"
    try:
        with open(own, "w", encoding="utf-8") as file:
            json.dump(_returned, file)
        os.replace(own, path)  # all workers write the same
    except OSError as error:
        raise RuntimeError(
            f"{path} cannot be written ({error.strerror}), by which `tenuto launch` hears that the "
            "script evaluates after fit(): start workers on the launcher's host, or a script that "
            "only evaluates"
        ) from error
    raise SystemExit(0)


def _done_before() -> list[Optional[float]]:
    found: list[Optional[float]] = json.loads(os.environ.get("TENUTO_DONE", "[]"))
    return found
