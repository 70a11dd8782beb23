"""The example that uses the collectives as a library, run as real processes."""
import os
import socket
import subprocess
import unittest

PROGRAM = os.environ["TENUTO_ALL_REDUCE"]
LIMIT = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Processes(unittest.TestCase):
    def start(self, *words):
        process = subprocess.Popen(
            [PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_members_end_with_the_average(self):
        meeting = f"127.0.0.1:{free_port()}"
        members = [self.start(meeting, place, 4) for place in range(4)]
        for place, process in enumerate(members):
            out, errors = process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, 0, errors)
            self.assertEqual(out.splitlines()[0], f"member {place} of 4: 2.5")
            self.assertIn("calls of about 4194304 bytes: ", out)

    def test_usage_and_refusals(self):
        process = self.start("127.0.0.1:7000", 0)
        out, errors = process.communicate(timeout=LIMIT)
        self.assertEqual((out, errors), ("", "usage: all_reduce HOST:PORT PLACE COUNT\n"))
        self.assertEqual(process.returncode, 2)
        process = self.start("127.0.0.1:7000", 4, 4)
        self.assertIn("places from 0 to one less", process.communicate(timeout=LIMIT)[1])
        self.assertEqual(process.returncode, 1)


if __name__ == "__main__":
    unittest.main()
