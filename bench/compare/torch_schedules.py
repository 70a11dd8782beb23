"""The schedules of torch.distributed.pipelining that Tenuto has too, and how they are made."""
import os

# By Tenuto's name: PyTorch's name, stages of a worker, where they are.
SCHEDULES = {
    "gpipe": ("GPipe", 1, "loop"),
    "1f1b": ("1F1B", 1, "loop"),
    "zb-h1": ("InterleavedZeroBubble", 1, "loop"),
    "interleaved": ("Interleaved1F1B", 2, "loop"),
    "looped-bfs": ("LoopedBFS", 2, "loop"),
    "interleaved-zb": ("InterleavedZeroBubble", 2, "loop"),
    "zb-v": ("ZBVZeroBubble", 2, "v"),
    "dualpipe-v": ("DualPipeV", 2, "v"),
}


def chunks_of(name):
    """How many stages a worker has."""
    return SCHEDULES[name][1]


def stages_of(name, worker, workers):
    """The numbers of the stages that a worker has, in the order in which PyTorch wants them."""
    _, chunks, placement = SCHEDULES[name]
    if placement == "v":
        return [worker, 2 * workers - 1 - worker]
    return [worker + chunk * workers for chunk in range(chunks)]


def worker_of(name, stage, workers):
    """The worker that has a stage."""
    if SCHEDULES[name][2] == "v" and stage >= workers:
        return 2 * workers - 1 - stage
    return stage % workers


def join(own, processes, port):
    """Makes this process a member of a group over Gloo on the loopback."""
    import torch
    import torch.distributed as distributed
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = distributed.TCPStore("127.0.0.1", port, processes, own == 0)
    distributed.init_process_group("gloo", store=store, rank=own, world_size=processes)


def make_stage(module, number, count, shapes, **more):
    """The PipelineStage of a module. `shapes` are tensors with the shapes of a micro-batch before
    and behind it: PyTorch would else find them out, for which it needs NumPy."""
    import torch
    from torch.distributed.pipelining import PipelineStage
    before, behind = shapes
    before = before.requires_grad_(number > 0)
    return PipelineStage(module, number, count, torch.device("cpu"), input_args=before,
                         output_args=behind.requires_grad_(True), **more)


def make_schedule(name, stages, micros, loss):
    """PyTorch's schedule of this name for the PipelineStages of this worker."""
    from torch.distributed.pipelining import schedules
    kind = schedules.get_schedule_class(SCHEDULES[name][0])
    whole = issubclass(kind, schedules.PipelineScheduleSingle)
    return kind(stages[0] if whole else stages, n_microbatches=micros, loss_fn=loss)
