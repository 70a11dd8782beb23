"""Times PyTorch's own dry run of a schedule: torch_simulate.py STAGES MICROS ROUNDS.

Reads the compute-only CSV of a schedule on stdin, one stage a worker, and prints one JSON object:
the number of actions with the messages that PyTorch adds, its simulated unit steps, and the
seconds that each round took. Preparation is not counted.
"""

import contextlib
import csv
import io
import json
import sys
import time

from torch.distributed.pipelining import schedules


def main():
    stages, rounds = int(sys.argv[1]), int(sys.argv[3])
    order = {
        worker: [schedules._Action.from_str(cell) for cell in row if cell]
        for worker, row in enumerate(csv.reader(sys.stdin))
    }
    order = schedules._add_send_recv(order, lambda stage: stage, stages)
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            simulated = schedules._simulate_comms_compute(order, lambda stage: stage, stages)
        seconds.append(time.perf_counter() - start)
    print(
        json.dumps(
            {
                "actions": sum(len(row) for row in order.values()),
                "steps": max(len(row) for row in simulated.values()),
                "seconds": seconds,
            }
        )
    )


main()
