"""Real processes all-reduce over UCX and some of them are killed: the survivors agree on every
sum, and go on."""
import os
import random
import signal
import socket
import subprocess
import threading
import unittest

PROGRAM = os.environ["TENUTO_OUTLIVING"]
LIMIT = 180
CALLS = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Member:
    def __init__(self, *words):
        self.process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.lines, self.heard = [], threading.Condition()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            with self.heard:
                self.lines.append(line.strip())
                self.heard.notify()
        with self.heard:
            self.heard.notify()

    def wait_for(self, count):
        with self.heard:
            done = lambda: len(self.lines) >= count or self.process.poll() is not None
            assert self.heard.wait_for(done, LIMIT), "no line within the limit"

    def end(self):
        self.process.kill()
        self.thread.join()
        self.process.communicate()


class Processes(unittest.TestCase):
    def play(self, algorithm, victims, seed):
        count, rng = 5, random.Random(seed)
        meeting = f"127.0.0.1:{free_port()}"
        members = [Member(meeting, place, count, algorithm, CALLS) for place in range(count)]
        for member in members:
            self.addCleanup(member.end)
        for victim in victims:
            # Kill it at a random moment of its next calls: no two runs are alike.
            members[victim].wait_for(len(members[victim].lines) + rng.randrange(1, 12))
            threading.Event().wait(rng.random() * 0.01)
            members[victim].process.send_signal(signal.SIGKILL)
        alive = [place for place in range(count) if place not in victims]
        said = []
        for place in alive:
            members[place].process.wait(LIMIT)
            members[place].thread.join()
            errors = members[place].process.stderr.read()
            self.assertEqual(members[place].process.returncode, 0, f"seed {seed}: {errors}")
            said.append(members[place].lines)
        for place, lines in zip(alive, said):
            self.assertEqual(lines, said[0], f"seed {seed}: members {alive[0]} and {place} differ")
        self.assertEqual(len(said[0]), CALLS)
        for call, line in enumerate(said[0]):
            self.assertEqual(line.split()[:2], [str(call), "right"], f"seed {seed}")
            self.assertTrue(set(map(str, alive)) <= set(line.split()[2:]), f"seed {seed}: {line}")
        self.assertEqual(said[0][-1].split()[2:], list(map(str, alive)), f"seed {seed}")

    def test_the_late_member_dies(self):
        self.play("late-one", [4], 1)

    def test_an_early_member_dies(self):
        self.play("late-one", [1], 2)

    def test_the_member_at_the_meeting_address_dies(self):
        self.play("ring", [0], 3)

    def test_the_ready_services_host_or_another_dies(self):
        self.play("asked", [0], 6)
        self.play("asked", [3], 7)

    def test_two_members_die(self):
        self.play("halving", [2, 3], 4)
        self.play("late-one", [0, 4], 5)


if __name__ == "__main__":
    unittest.main()
