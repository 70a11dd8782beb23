"""Workers that others have started together: one starts the coordinator, and all join it."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from ._place import Place, check_count, flags_of, flags_of_evaluation, is_done
from ._program import find_program
from ._signals import passed_on

# Seconds that the processes wait for each other: each imports torch first.
_LIMIT = 300.0
_PAUSE = 0.1


@contextlib.contextmanager
def joined(
    place: Place,
    job: Mapping[str, Any],
    job_file: str,
    settings: Sequence[str],
    resume: Optional[bool],
    before: int = 0,
) -> Iterator[None]:
    """Fill the environment with what a worker of `tenuto launch` finds there, for the block.

    job       what read_job() says of the job
    job_file  path, or empty: the settings are all
    settings  "section.key=value", with those of the model
    resume    what fit() was given; for evaluate() None
    before    in how many runs the processes have taken part already

    In the process of rank 0 the coordinator runs beside the block, and its end is waited for: the
    run may go on without this worker. Signals are the coordinator's, see passed_on().

    Errors: ValueError with a sentence for another number of workers than the job's, for no token,
            or a flag that says the opposite of `resume`; RuntimeError when no coordinator listens;
            SystemExit with its exit code unless 0, or when all steps are done.
    """
    check_count(place, job)
    store = _store_of() if place.system == "torchrun" else None
    token = _token_of(place, store is not None)
    # Each run has a coordinator of its own, and that of the run before may listen a little longer.
    place = place._replace(port=place.port + before if place.port else 0)
    key = f"tenuto-{before}"
    words = shlex.split(os.environ.get("TENUTO_FLAGS", ""))
    if job["evaluates"]:
        newest, flags = None, flags_of_evaluation(words)
    else:
        newest = _newest_checkpoint(os.path.join(job["directory"], job["name"]))
        flags = flags_of(words, place.restarts, newest, resume)
    if not place.starts_coordinator:
        if is_done(flags, newest, job["steps"]):
            raise SystemExit(0)  # nobody will listen; the coordinator says why
        address = f"{place.host}:{place.port}"
        if store is not None:
            address, token = store.get(key).decode().split(" ")
        _wait_for(address, None)
        _tell_worker(place, job, address, token)
        with passed_on(None):
            yield
        return
    flags += [f"--{each}" for each in settings]
    with _beside_coordinator(place, job, job_file, flags, token, store, key):
        yield


@contextlib.contextmanager
def _beside_coordinator(
    place: Place,
    job: Mapping[str, Any],
    job_file: str,
    flags: Sequence[str],
    token: str,
    store: Any,
    key: str,
) -> Iterator[None]:
    """Run the coordinator beside the block, in the process of rank 0, and wait for its end.

    flags  of the coordinator, job settings too
    store  of torchrun, or None: there the others find address and token under `key`
    """
    with contextlib.ExitStack() as stack:
        if not job_file:
            job_file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".toml")).name
        host, listen_host, port = place.host, "0.0.0.0", place.port
        if store is not None:
            host = listen_host = socket.gethostbyname(place.host)
            token = token or secrets.token_hex(16)
            port = port or _free_port(host)
        listen = f"--coordinator.listen={listen_host}:{port}"
        coordinator = subprocess.Popen(
            [find_program(), "coordinator", job_file, *flags, listen],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TENUTO_TOKEN": token},
            start_new_session=True,  # passed_on() alone gives it signals
        )
        stack.enter_context(passed_on(coordinator))
        try:
            _wait_for(address := f"{host}:{port}", coordinator)
            if store is not None:
                store.set(key, f"{address} {token}")
            _tell_worker(place, job, address, token)
            # A worker that fails has said why, and the run may go on without it.
            with contextlib.suppress(SystemExit):
                yield
            code = coordinator.wait()
        finally:
            if coordinator.poll() is None:
                coordinator.terminate()
                coordinator.wait()
        if code != 0:
            raise SystemExit(code)


def _token_of(place: Place, has_store: bool) -> str:
    """Return TENUTO_TOKEN. Empty: there is none, and the store can hand one out."""
    token = os.environ.get("TENUTO_TOKEN", "")
    if not has_store and not token:
        raise ValueError(
            f"the processes that {place.system} has started must share a secret: set TENUTO_TOKEN "
            "to the same random text in all of them"
        )
    return token


def _newest_checkpoint(run: str) -> Optional[int]:
    try:
        names = os.listdir(run)
    except OSError:
        return None
    steps = [name[len("checkpoint-") :] for name in names if name.startswith("checkpoint-")]
    return max((int(step) for step in steps if step.isdigit()), default=None)


def _store_of() -> Any:
    """Return the store that torchrun has for its processes."""
    from torch.distributed.rendezvous import rendezvous

    limit = datetime.timedelta(seconds=_LIMIT)
    store, _rank, _count = next(iter(rendezvous("env://", timeout=limit)))
    return store


def _free_port(host: str) -> int:
    with socket.socket() as one:
        one.bind((host, 0))
        return int(one.getsockname()[1])


def _wait_for(address: str, coordinator: Optional[subprocess.Popen[bytes]]) -> None:
    """Wait until somebody listens at an address. `coordinator`: who will, if a child of ours."""
    host, port = address.rsplit(":", 1)
    end = time.monotonic() + _LIMIT
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5):
                return
        except OSError as error:
            why = error
        # It has said itself what is wrong, or that all steps are done.
        if coordinator is not None and coordinator.poll() is not None:
            raise SystemExit(coordinator.returncode)
        if time.monotonic() > end:
            raise RuntimeError(
                f"no coordinator listens at {address} after {_LIMIT:.0f} s ({why}): see what the "
                "process of rank 0 prints, and whether this host reaches that address"
            )
        time.sleep(_PAUSE)


def _tell_worker(place: Place, job: Mapping[str, Any], address: str, token: str) -> None:
    os.environ["TENUTO_COORDINATOR"] = address
    os.environ["TENUTO_JOB"] = job["name"]
    os.environ["TENUTO_TOKEN"] = token
    os.environ["TENUTO_WORKER"] = str(place.rank)
    # A process that takes the place later needs a higher one.
    os.environ["TENUTO_INCARNATION"] = str(int(time.time()))
