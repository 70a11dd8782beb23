"""An all-reduce with one late member: Tenuto beside Gloo and Open MPI.

    ./run bench list                                    builds the members, and installs Open MPI
    ./run python bench/compare/late_rank.py [--quick] [--json]

The last member begins late by some multiples of the time that Tenuto's ring takes when nobody is
late. Each figure is the time from its begin to the end of the last member, in ms, a median of calls
that took turns. "tenuto" is the fastest of --algorithms; a group that trains chooses it by itself
(docs/collectives.md). The ratio is that to the faster one of the peers. As root, each member is on
a host of its own (tools/virtual_cluster) that sends --megabits; otherwise all are on the loopback.
"""
import os
import pathlib
import shutil
import subprocess
import sys

from common import (LIMIT, ROOT, LineProcess, Lost, ask_all, free_port, has_module, median,
                    parser_of, ratios, read_flags, run_main, settings_of, show, versions)

CLUSTER = ROOT / "tools" / "virtual_cluster"
SLICE = 512 << 10  # bytes, as in all_reduce_bench
CLAIM = ("Published (StragglAR): 22 to 25 % faster than the best all-reduce on 8 GPUs with a late "
         "one; 2x in theory on large clusters.")


class Hosts:
    """The hosts of the members: network namespaces with limited rates, or this machine."""

    def __init__(self, members, megabits):
        self.shaped = megabits > 0
        self.device = "eth0" if self.shaped else "lo"
        if self.shaped:
            self._call("up", members, megabits)

    def address(self, member):
        return f"10.77.0.{member + 1}" if self.shaped else "127.0.0.1"

    def on(self, member, words):
        return [CLUSTER, "exec", member, *words] if self.shaped else words

    def end(self):
        if self.shaped:
            self._call("down")

    @staticmethod
    def _call(*words):
        done = subprocess.run([str(word) for word in (CLUSTER, *words)], capture_output=True,
                              text=True, timeout=LIMIT, check=False)
        if done.returncode != 0:
            raise Lost(f"virtual_cluster {words[0]}: {done.stderr.strip()}; give --megabits 0 to "
                       "compare on the loopback")


def last_of(answers):
    """The ms from the last arrival to the last end, from each member's begin and end in ns."""
    times = [tuple(map(float, answer.split()[:2])) for answer in answers]
    return (max(end for _, end in times) - max(begin for begin, _ in times)) / 1e6


class Tenuto:
    def __init__(self, flags, hosts, program):
        self.members, self.processes = flags.members, []
        for member in range(flags.members):
            self.processes.append(LineProcess(hosts.on(member, [
                program, "--member", member, "--members", flags.members, "--host",
                hosts.address(member), "--device", hosts.device, "--wire", "auto", "--progress",
                "event", "--sends", 2, "--receives", 0, "--link-megabits", flags.megabits])))
        addresses = " ".join(process.read().removeprefix("address ") for process in self.processes)
        if set(ask_all(self.processes, addresses)) != {"ready"}:
            raise Lost("members of Tenuto do not connect")

    def run(self, algorithm, size, late_us):
        return last_of(ask_all(
            self.processes,
            f"{self.members} {size} 1 {late_us} {algorithm} 0 -1 {SLICE} 1 0"))


class Gloo:
    def __init__(self, flags, hosts):
        port = 20000 + os.getpid() % 10000 if hosts.shaped else free_port()
        self.processes = [LineProcess(hosts.on(member, [
            sys.executable, ROOT / "bench" / "all_reduce_gloo.py", member, flags.members,
            hosts.address(0), port, hosts.device])) for member in range(flags.members)]
        if {process.read() for process in self.processes} != {"ready"}:
            raise Lost("members of Gloo do not connect")

    def run(self, _algorithm, size, late_us):
        return last_of(ask_all(self.processes, f"{size} 1 {late_us} 1"))


class OpenMpi:
    def __init__(self, flags, hosts, program):
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", flags.members]
        choices = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": hosts.device,
                   "mpi_yield_when_idle": 1}
        if hosts.shaped:
            words += ["--host", ",".join(map(hosts.address, range(flags.members)))]
            choices |= {"plm_rsh_agent": f"{CLUSTER} shell", "plm_rsh_no_tree_spawn": 1,
                        "oob_tcp_if_include": hosts.device, "orte_keep_fqdn_hostnames": 1}
        for name, value in choices.items():
            words += ["--mca", name, value]
        self.processes = [LineProcess(hosts.on(0, [*words, program]))]

    def run(self, _algorithm, size, late_us):
        return float(ask_all(self.processes, f"{size} 1 {late_us} 1")[0].split()[0]) / 1e3


def begin_systems(flags, hosts, systems):
    """Fills `systems` as they begin, so that the caller can end them; those that are not there get
    a note."""
    folder = pathlib.Path(flags.programs)
    member = folder / "all_reduce_bench"
    if not member.exists():
        raise Lost(f"there is no program {member}: build it with ./run bench list, or name its "
                   "folder with --programs")
    systems["tenuto"] = Tenuto(flags, hosts, member)
    if has_module("torch"):
        systems["Gloo"] = Gloo(flags, hosts)
    else:
        flags.notes.append("Gloo: this Python has no torch; call ./run python")
    mpi = folder / "all_reduce_mpi"
    if mpi.exists() and shutil.which("mpirun"):
        systems["Open MPI"] = OpenMpi(flags, hosts, mpi)
    else:
        flags.notes.append("Open MPI: not here; ./run bench list installs and uses it")


def measure(flags, systems, size, late_us):
    """The times of each column in ms."""
    columns = {("tenuto", algorithm): [] for algorithm in flags.algorithms}
    columns |= {(name, ""): [] for name in systems if name != "tenuto"}
    for turn in range(flags.repeats + 1):
        for (name, algorithm), found in columns.items():
            took = systems[name].run(algorithm, size, late_us)
            if turn > 0:  # the first call warms up
                found.append(took)
    return columns


def row_of(flags, systems, size, times_ring, ring):
    columns = measure(flags, systems, size, round(1000 * times_ring * ring))
    best = min(flags.algorithms, key=lambda one: median(columns["tenuto", one]))
    others = {name: columns[name, ""] for name in systems if name != "tenuto"}
    nearest = min(others, key=lambda name: median(others[name])) if others else None
    peers = [median(others[name]) if name in others else None for name in ("Gloo", "Open MPI")]
    return [f"{size >> 10} KiB", times_ring, median(columns["tenuto", best]), best, *peers,
            ratios(columns["tenuto", best], others[nearest]) if nearest else None]


def flags_of():
    parser = parser_of(__doc__)
    may_shape = os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc")
    parser.add_argument("--programs", default=str(ROOT / "build" / "release" / "bench"),
                        help="the folder of all_reduce_bench and all_reduce_mpi")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--megabits", type=int, default=200 if may_shape else 0,
                        help="what each host sends; 0 = the loopback")
    parser.add_argument("--kib", default="1024,4096", help="sizes of tensors")
    parser.add_argument("--lateness", default="0,0.5,1,2", help="in units of the ring's time")
    parser.add_argument("--algorithms", default="ring,halving,late-one")
    flags = read_flags(parser, 7)
    if not 2 <= flags.members <= 64 or flags.megabits < 0:
        parser.error("--members is from 2 to 64, --megabits 0 or more")
    if flags.quick:
        flags.members, flags.kib, flags.lateness = 4, "1024", "0,1"
    flags.algorithms, flags.notes = flags.algorithms.split(","), []
    if "ring" not in flags.algorithms:
        parser.error("--algorithms has no ring, whose time is the unit of --lateness: add it")
    return flags


def main():
    flags = flags_of()
    if flags.megabits > 0 and "TENUTO_ALONE" not in os.environ:
        # Again, in a world of its own, whose hosts vanish with the last process.
        os.execve(CLUSTER, [str(CLUSTER), "alone", sys.executable, *sys.orig_argv[1:]],
                  {**os.environ, "TENUTO_ALONE": "1"})
    rows, systems = [], {}
    hosts = Hosts(flags.members, flags.megabits)
    try:
        begin_systems(flags, hosts, systems)
        for size in (int(kib) << 10 for kib in flags.kib.split(",")):
            ring = median(measure(flags, {"tenuto": systems["tenuto"]}, size, 0)["tenuto", "ring"])
            rows += [row_of(flags, systems, size, float(late), ring)
                     for late in flags.lateness.split(",")]
    finally:
        for system in systems.values():
            for process in system.processes:
                process.end()
        hosts.end()
    where = f"{flags.megabits} Mbit/s a host" if hosts.shaped else "the loopback"
    settings = settings_of(flags, **versions("torch"), members=flags.members, links=where,
                           mpi="ob1 over TCP, yields when idle")
    show(flags, settings, ["size", "late", "tenuto", "algorithm", "Gloo", "Open MPI",
                           "tenuto/best peer"], rows, [*flags.notes, CLAIM])


if __name__ == "__main__":
    run_main(main)
