"""Writes every schedule that PyTorch can dump, and random changes of them; dry-runs each.

    torch_dry_run.py FOLDER SEED COUNT

Dumps the schedules of all classes for several shapes, with messages (*.comms) and without (*.csv),
and COUNT files with random changes (mutant-*.csv). Prints one JSON object on stdout: "dumps" and
"mutants" map each file name to whether _simulate_comms_compute completes.
"""
import contextlib
import io
import json
import pathlib
import random
import sys

from torch.distributed.pipelining import schedules

from torch_orders import stand_in, write_rows

STEP = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
SHAPES = [("GPipe", 1), ("1F1B", 1), ("Interleaved1F1B", 1), ("Interleaved1F1B", 2),
          ("Interleaved1F1B", 3), ("LoopedBFS", 1), ("LoopedBFS", 2), ("InterleavedZeroBubble", 1),
          ("InterleavedZeroBubble", 2), ("ZBVZeroBubble", 2), ("DualPipeV", 2)]


def plain(row):
    """The actions that the dry run knows: compute, in single cells, and messages."""
    actions = []
    for action in row:
        parts = action.sub_actions if action.sub_actions is not None else (action,)
        actions += [part for part in parts if part.computation_type.value not in STEP]
    return actions


def comes_to_the_end(rows, rank_of, stages):
    # The dry run prints its progress; that print fails if a rank has taken no step.
    schedules._format_pipeline_order = str
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            schedules._simulate_comms_compute({rank: list(row) for rank, row in rows.items()},
                                              lambda stage: rank_of[stage], stages)
        except ValueError:
            return False
    return True


def with_messages(made):
    """The schedule with messages. GPipe and 1F1B have none: it is made from their lists."""
    if hasattr(made, "pipeline_order_with_comms"):
        return made.pipeline_order_with_comms, made.stage_index_to_group_rank
    ranks = made._num_stages
    order = {rank: [action for action in row if action is not None]
             for rank, row in made._get_pipeline_order().items()}
    rank_of = {stage: stage for stage in range(ranks)}
    order = {rank: schedules._add_unshard_reshard(row) for rank, row in order.items()}
    return schedules._add_send_recv(order, lambda stage: stage, ranks), rank_of


def make(name, chunks, ranks, micros, defer):
    kind = schedules.get_schedule_class(name)
    stages = [stand_in(0, ranks, ranks * c, chunks * ranks) for c in range(chunks)]

    def loss(output, target):
        return (output - target).sum()

    if name in ("GPipe", "1F1B"):
        return kind(stages[0], micros, loss)
    return kind(stages, micros, loss, **({"defer_pp_recv": True} if defer else {}))


def mutant(rows, draw):
    """A copy of the rows in which a few cells are moved or, seldom, removed."""
    rows = {rank: list(row) for rank, row in rows.items()}
    for _ in range(draw.randint(1, 3)):
        row = rows[draw.choice(sorted(rows))]
        first = draw.randrange(len(row))
        if draw.random() < 0.5:
            second = min(first + 1, len(row) - 1)
            row[first], row[second] = row[second], row[first]
        elif draw.random() < 0.9:
            row.insert(draw.randrange(len(row)), row.pop(first))
        else:
            row.pop(first)
    return rows


def main(folder, seed, count):
    folder, draw = pathlib.Path(folder), random.Random(seed)
    dumps, mutants, sources = {}, {}, []
    for name, chunks in SHAPES:
        for ranks, micros in ((2, 4), (4, 8)):
            for defer in (False, True):
                if defer and name in ("GPipe", "1F1B"):
                    continue
                made = make(name, chunks, ranks, micros, defer)
                stages = made._num_stages
                try:
                    lowered, rank_of = with_messages(made)
                except AssertionError:  # this PyTorch lists an invalid order for 1F1B
                    continue
                stem = f"{name}-{chunks}-{ranks}-{'deferred' if defer else 'early'}"
                if hasattr(made, "_dump_csv"):
                    made._dump_csv(folder / f"{stem}.csv", format="compute_only")
                    made._dump_csv(folder / f"{stem}.comms", format="compute_comms")
                else:
                    write_rows(folder / f"{stem}.csv", made._get_pipeline_order())
                    write_rows(folder / f"{stem}.comms", lowered)
                rows = {rank: plain(lowered[rank]) for rank in lowered}
                dumps[f"{stem}.comms"] = comes_to_the_end(rows, rank_of, stages)
                if ranks == 2:
                    sources.append((rows, rank_of, stages))
    for number in range(count):
        rows, rank_of, stages = draw.choice(sources)
        changed = mutant(rows, draw)
        write_rows(folder / f"mutant-{number}.csv", changed)
        mutants[f"mutant-{number}.csv"] = comes_to_the_end(changed, rank_of, stages)
    print(json.dumps({"dumps": dumps, "mutants": mutants}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
