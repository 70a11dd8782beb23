"""A member of the data-parallel training of after_a_kill.py, for PyTorch.

    killed_member.py torchrun FOLDER STEP_MS PARAMETER_BYTES CHECKPOINT_EVERY   (under torchrun)
    killed_member.py torchft FOLDER STEP_MS PARAMETER_BYTES LEAST MEMBER LIGHTHOUSE SUM_MS
    killed_member.py lighthouse HEARTBEAT_MS JOIN_MS LEAST

A step sleeps, then sums PARAMETER_BYTES of gradients with the other members. Each member writes its
process id to FOLDER/pid-MEMBER when it begins, and a JSON line to FOLDER/steps-MEMBER after each
step: {"step": N}, or {"discarded": N} for a step that torchft does not commit. With torchft,
"members" beside it says how many gradients the sum had, LEAST members make a step, and an
all-reduce fails after SUM_MS. The lighthouse prints its address and lives until its input ends.
"""
import datetime
import json
import os
import pathlib
import sys
import time
import warnings

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hides warnings that hosts have no names
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch  # noqa: E402: the warning comes with the import
import torch.distributed as distributed  # noqa: E402
from torch import nn  # noqa: E402

LIMIT = datetime.timedelta(seconds=60)


class Model(nn.Module):
    def __init__(self, parameter_bytes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(parameter_bytes // 4))

    def forward(self, scale):
        return (self.weight * scale).sum()


class Log:
    """What a member writes."""

    def __init__(self, folder, member):
        (folder / f"pid-{member}").write_text(str(os.getpid()))
        self.file = (folder / f"steps-{member}").open("a", encoding="utf-8")

    def add(self, **line):
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()


def under_torchrun(folder, step_ms, parameter_bytes, checkpoint_every):
    member, saved = int(os.environ["RANK"]), folder / "checkpoint"
    log = Log(folder, member)
    # A file of its own for each restart: in the agent's store, restarted members may find the
    # addresses of those that were ended, and wait for them.
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store-{restarts}",
                                   rank=member, world_size=int(os.environ["WORLD_SIZE"]),
                                   timeout=LIMIT)
    model = nn.parallel.DistributedDataParallel(Model(parameter_bytes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    if saved.exists():
        found = torch.load(saved)
        step = found["step"]
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
    while True:
        if step % checkpoint_every == 0 and member == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, folder / "new")
            (folder / "new").rename(saved)
        optimizer.zero_grad()
        time.sleep(step_ms / 1e3)
        model(1.0).backward()
        optimizer.step()
        log.add(step=step)
        step += 1


def with_torchft(folder, step_ms, parameter_bytes, least, member, lighthouse, sum_ms):
    """The sum is Manager.allreduce: the hook of torchft.DistributedDataParallel 0.2.0 ends its
    process with an AssertionError when an all-reduce cannot begin because a peer is gone."""
    import torchft
    log = Log(folder, member)
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    model = Model(parameter_bytes)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)

    def state():
        return {"model": model.state_dict(), "optimizer": inner.state_dict()}

    def take(found):
        model.load_state_dict(found["model"])
        inner.load_state_dict(found["optimizer"])

    group = torchft.ProcessGroupGloo(timeout=datetime.timedelta(milliseconds=sum_ms))
    manager = torchft.Manager(
        pg=group, load_state_dict=take, state_dict=state,
        min_replica_size=least, init_sync=False, rank=0, world_size=1, store_addr="127.0.0.1",
        store_port=store.port, lighthouse_addr=lighthouse, replica_id=f"member-{member}",
        hostname="127.0.0.1", timeout=LIMIT, quorum_timeout=LIMIT, connect_timeout=LIMIT)
    optimizer = torchft.Optimizer(manager, inner)
    while True:
        before = manager.current_step()
        optimizer.zero_grad()
        time.sleep(step_ms / 1e3)
        model(1.0).backward()
        manager.allreduce(model.weight.grad).wait()
        members = manager.num_participants()
        optimizer.step()
        done = manager.current_step() > before
        log.add(**{"step" if done else "discarded": before, "members": members})


def lighthouse_of(heartbeat_ms, join_ms, least):
    from torchft.coordination import LighthouseServer
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=least, join_timeout_ms=join_ms,
                              quorum_tick_ms=10, heartbeat_timeout_ms=heartbeat_ms)
    print(server.address(), flush=True)
    sys.stdin.read()
    server.shutdown()


def main():
    way, *words = sys.argv[1:]
    torch.set_num_threads(1)
    if way == "lighthouse":
        lighthouse_of(*map(int, words))
        return
    folder, step_ms, parameter_bytes = pathlib.Path(words[0]), float(words[1]), int(words[2])
    if way == "torchrun":
        under_torchrun(folder, step_ms, parameter_bytes, int(words[3]))
    else:
        least, member, lighthouse, sum_ms = words[3:]
        with_torchft(folder, step_ms, parameter_bytes, int(least), int(member), lighthouse,
                     float(sum_ms))


if __name__ == "__main__":
    main()
