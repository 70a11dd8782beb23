"""A Gloo member of all_reduce_bench, with the Gloo of torch.distributed.

    bench/all_reduce_gloo.py SELF MEMBERS HOST PORT DEVICE

HOST and PORT are member 0's, which keeps the store. It prints "ready". Then every line of its input
is a request, "BYTES REPEATS LATE_MICROSECONDS CALLS". REPEATS times the members run CALLS in-place
all-reduces of BYTES bytes of floats in a row; the last member begins LATE_MICROSECONDS late. It
answers with begin and end of each repeat, in nanoseconds of the machine's monotonic clock.
"""
import os
import sys
import time
import warnings

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hides warnings that hosts have no names
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch  # noqa: E402: the warning comes with the import
import torch.distributed as distributed  # noqa: E402


def main():
    own, members, host, port, device = sys.argv[1:]
    own, members = int(own), int(members)
    os.environ["GLOO_SOCKET_IFNAME"] = device
    torch.set_num_threads(1)
    store = distributed.TCPStore(host, int(port), members, own == 0)
    distributed.init_process_group("gloo", store=store, rank=own, world_size=members)
    print("ready", flush=True)
    for line in sys.stdin:
        size, repeats, late, calls = map(int, line.split())
        values = torch.zeros(size // 4)
        answer = []
        for _ in range(repeats):
            values.fill_(own + 1)
            distributed.barrier()
            if own == members - 1:
                time.sleep(late / 1e6)
            begun = time.monotonic_ns()
            for _ in range(calls):
                distributed.all_reduce(values)
            answer += [begun, time.monotonic_ns()]
            distributed.barrier()  # early members take no CPU from the others
            wanted = members * (members + 1) // 2 * float(members) ** (calls - 1)
            assert abs(values[-1] / wanted - 1) <= 1e-6 * (calls - 1)
        print(*answer, flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
