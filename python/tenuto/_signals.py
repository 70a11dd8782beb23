"""Signals to a script that others have started: rank 0 passes them on to the coordinator."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Optional

# They stop the run after a step, with a checkpoint; SIGUSR1 has a checkpoint saved soon.
_STOPS = (signal.SIGINT, signal.SIGTERM)
_PASSED = (*_STOPS, signal.SIGUSR1)


@contextlib.contextmanager
def passed_on(coordinator: Optional[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Pass SIGINT, SIGTERM and SIGUSR1 on to the coordinator for the block; None: ignore them.

    torchrun, Slurm and Kubernetes send SIGTERM to every process, and Python would end at once, with
    the steps since the newest checkpoint. With this, the run ends, and all processes with it.

    Python lets only its main thread set handlers: in another thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _PASSED}
    try:
        if coordinator is None:
            _handle(signal.SIG_IGN)
            yield
        else:
            with _passing(coordinator):
                yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _handle(handler: signal._HANDLER) -> None:
    for number in _PASSED:
        signal.signal(number, handler)


@contextlib.contextmanager
def _passing(coordinator: subprocess.Popen[bytes]) -> Iterator[None]:
    # The main thread trains in C++, where Python runs no handlers. But Python writes the number of
    # a signal to this socket at once, whatever its threads do.
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    _handle(lambda _number, _frame: None)
    thread = threading.Thread(target=_pass, args=(reading, coordinator), name="tenuto-signals")
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writing.close()
        thread.join()
        reading.close()


def _pass(reading: socket.socket, coordinator: subprocess.Popen[bytes]) -> None:
    stopped = False
    while numbers := reading.recv(64):
        for number in numbers:
            # After Ctrl-C both the terminal and torchrun send a signal, and a second one would end
            # the run without a checkpoint.
            if number == signal.SIGUSR1 or (number in _STOPS and not stopped):
                coordinator.send_signal(number)
            stopped = stopped or number in _STOPS
