"""What `tenuto profile` finds in a cluster whose links are shaped to known rates.

    bench/shaped_profile.py TENUTO

tools/virtual_cluster makes four hosts, which are network namespaces. Hosts 0 and 2 are one place,
hosts 1 and 3 another one. Links send at 400 Mbit/s within a place, and at 80 Mbit/s between the
two. The script prints the places and the rates that were found beside the true ones. It fails if a
place is wrong or a rate is wrong by 5 % or more. It needs a machine that does nothing else.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

CLUSTER = pathlib.Path(__file__).resolve().parents[1] / "tools" / "virtual_cluster"
NEAR, FAR = 400, 80  # Mbit/s
PLACES = [0, 1, 0, 1]
PAYLOAD = 1448 / 1514  # TCP's share of a frame
LIMIT = 300
JOB = """\
[job]
name = "shaped"
[parallel]
stages = 4
[device]
kind = "paced"
clock = "real"
forward_ms = 1
backward_input_ms = 1
backward_weight_ms = 1
[network]
device = "eth0"
protocol = "eager"
[coordinator]
listen = "10.77.0.254:0"
launch = ["ip", "netns", "exec", "vc{worker}"]
"""


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=LIMIT, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}{done.stdout}")
    return done.stdout


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if "TENUTO_ALONE" not in os.environ:  # start again, with namespaces that end with it
        os.environ["TENUTO_ALONE"] = "1"
        os.execv(CLUSTER, [CLUSTER, "alone", sys.executable, *sys.argv])
    run(CLUSTER, "up", 4, NEAR)
    for one, place in enumerate(PLACES):
        for other, its in enumerate(PLACES):
            if place != its:
                run(CLUSTER, "link", one, other, FAR)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "job.toml").write_text(JOB)
        said = json.loads(run(CLUSTER, "exec", "hub", sys.argv[1], "profile", folder / "job.toml",
                              "--links-only", "--json", "--out", folder))
        cluster = json.loads((folder / "cluster.json").read_text())
    run(CLUSTER, "down")
    right = said["places"] == PLACES
    print(f"places found {said['places']}, shaped {PLACES}")
    for name, one, other, rate in (("near", 0, 0, NEAR), ("far", 0, 1, FAR)):
        true = rate / 8e3 * PAYLOAD  # GB/s
        found = cluster["bandwidth_gbps"][one][other]
        right = right and abs(found / true - 1) < 0.05
        print(f"{name:5} found {1e3 * found:6.2f} MB/s, shaped {1e3 * true:6.2f} MB/s "
              f"({100 * (found / true - 1):+.1f} %)")
    sys.exit(not right)


if __name__ == "__main__":
    main()
