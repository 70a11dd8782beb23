"""Checkpoints that are written while steps go on: the same files, and whole whatever is killed."""
import os
import select
import unittest

from harness import KILL, TERM, Case


class Asynchronous(Case):
    def setUp(self):
        super().setUp()
        # Several times what a pipe takes, and more than one piece.
        self.write_job(device__parameter_bytes=2 << 20, job__checkpoint_asynchronous=True)

    def test_the_files_are_those_of_a_run_that_waits_for_them(self):
        later = self.train(name="later")
        waits = self.train("--job.checkpoint_asynchronous=false", name="waits")
        self.assertEqual(later.checkpoints(), [10, 15, 20])
        self.assertEqual(waits.checkpoints(), [10, 15, 20])
        for step in (10, 15, 20):
            for stage in (0, 1):
                name = f"checkpoint-{step}/stage-{stage}.safetensors"
                self.assertEqual((later.folder / name).read_bytes(),
                                 (waits.folder / name).read_bytes(), name)
        self.assertEqual(self.losses(later), self.losses(waits))

    def test_a_run_that_is_told_to_stop_has_its_last_state_on_disk(self):
        run = self.start("--job.steps=1000000")
        run.wait_for_steps(7)
        run.process.send_signal(TERM)
        self.assertEqual(run.finish(), 143, f"{run.errors}{self.logs(run)}")
        self.assertEqual(run.checkpoints()[-1], len(run.metrics()))

    @staticmethod
    def block(run):
        """Puts a pipe in the place of a file of a later checkpoint; nobody will empty it. Returns
        the version and the end to read from."""
        while True:
            version = (len(run.metrics()) // 5 + 20) * 5
            folder = run.folder / f"checkpoint-{version}.tmp"
            folder.mkdir()
            os.mkfifo(folder / "stage-0.safetensors")
            reader = os.open(folder / "stage-0.safetensors", os.O_RDONLY | os.O_NONBLOCK)
            if len(run.metrics()) < version - 5:
                return version, reader
            os.close(reader)  # this test was too slow, and the run may have got there before

    def test_a_kill_in_the_middle_of_a_file_leaves_the_checkpoint_before(self):
        run = self.start("--job.steps=1000000", "--job.keep=30")
        run.wait_for_steps(1)
        version, reader = self.block(run)
        self.addCleanup(os.close, reader)
        run.wait_until(lambda: bool(select.select([reader], [], [], 0)[0]),
                       "a part of the file is written")
        run.wait_for_steps(version + 3)  # steps go on meanwhile
        run.wait_until(lambda: version - 5 in run.checkpoints(), "the checkpoint before is whole")
        workers = run.workers()
        self.assertEqual(len(workers), 4)
        run.process.kill()
        for process in workers.values():
            try:
                os.kill(process, KILL)
            except ProcessLookupError:
                pass
        run.process.wait()
        self.assert_gone(workers)
        self.assertEqual(run.checkpoints()[-1], version - 5)
        again = self.train("--resume", f"--job.steps={version + 2}")
        self.assertTrue(any(f"from the checkpoint of step {version - 5}" in event["reason"]
                            for event in again.events()))
        self.assertEqual([line["step"] for line in again.metrics()], list(range(version + 2)))
        self.assertIn(version, again.checkpoints())


if __name__ == "__main__":
    unittest.main()
