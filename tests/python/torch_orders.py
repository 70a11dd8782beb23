"""Writes PyTorch's own schedules, one CSV for each; prints their names as JSON on stdout.

    torch_orders.py FOLDER RANKS MICROS
"""
import csv
import json
import pathlib
import sys
import types

import torch
from torch.distributed.pipelining import schedules

CHUNKS = {"1F1B": 1, "Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2,
          "ZBVZeroBubble": 2, "DualPipeV": 2}


def stand_in(rank, ranks, stage, stages):
    """A stub with the attributes of a stage that a schedule reads before it runs."""
    return types.SimpleNamespace(
        group_size=ranks, group_rank=rank, num_stages=stages, stage_index=stage,
        is_first=stage == 0, is_last=stage == stages - 1, has_backward=False,
        submod=torch.nn.Identity(), stage_index_to_group_rank=None, device=torch.device("cpu"))


def write_rows(path, order):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        for rank in sorted(order):
            writer.writerow(order[rank])


def main(folder, ranks, micros):
    folder = pathlib.Path(folder)

    def loss(output, target):
        return (output - target).sum()

    for name in ("GPipe", "1F1B"):
        made = schedules.get_schedule_class(name)(stand_in(0, ranks, 0, ranks), micros, loss)
        write_rows(folder / f"{name}.order", made._get_pipeline_order())
    (folder / "GPipe.order").rename(folder / "GPipe.csv")
    names = ["GPipe"]
    for name, chunks in CHUNKS.items():
        stages = [stand_in(0, ranks, ranks * c, chunks * ranks) for c in range(chunks)]
        # 1F1B runs the interleaved schedule with one stage per rank. The order that it lists
        # itself (1F1B.order) begins with micro-batch 1 at the last rank.
        made = schedules.get_schedule_class("Interleaved1F1B" if chunks == 1 else name)(
            stages, micros, loss)
        made._dump_csv(folder / f"{name}.csv", format="compute_only")
        made._dump_csv(folder / f"{name}.comms", format="compute_comms")
        names.append(name)
    print(json.dumps(names))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
