"""Workers that are started through another program."""
import pathlib
import unittest

from harness import Case, TERM, another_case


def processes_of(run):
    """Every process that names the run's coordinator as the parent of a worker."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (OSError, NotADirectoryError):
            continue
        if "--parent" in arguments and \
                arguments[arguments.index("--parent") + 1] == str(run.process.pid):
            found.append(int(entry.name))
    return found


class Launch(Case):
    def write_launching_job(self, *words):
        self.write_job(job__steps=5000, job__checkpoint_every=0, coordinator__launch=list(words))

    def test_a_program_that_becomes_the_worker(self):
        self.write_launching_job("env", "SEAT=number {worker} of {worker}")
        run = self.start()
        run.wait_for_steps(1)
        workers = run.workers()
        self.assertEqual(sorted(workers), [0, 1, 2, 3])
        for worker, process in workers.items():
            environment = pathlib.Path(f"/proc/{process}/environ").read_bytes().decode()
            self.assertIn(f"SEAT=number {worker} of {worker}\0", environment)
        self.assertEqual(len(processes_of(run)), 4)  # no wrapper process remains
        run.process.kill()
        self.assert_gone(workers)

    def test_a_program_that_runs_the_worker(self):
        self.write_launching_job("sh", "-c", '"$@"; exit $?', "sh")
        run = self.start()
        run.wait_for_steps(1)
        processes = processes_of(run)
        self.assertEqual(len(processes), 8)
        run.process.kill()
        self.assert_gone(dict(enumerate(processes)))
        run.finish()
        run = self.start(name="stopped")
        run.wait_for_steps(1)
        processes = processes_of(run)
        run.process.send_signal(TERM)
        self.assertEqual(run.finish(), 143)
        self.assert_gone(dict(enumerate(processes)))

    @another_case
    def test_a_worker_stopped_before_it_connects_is_replaced(self):
        once = self.folder / "once"
        stop = (f'if [ {{worker}} = 1 ] && mkdir {once} 2>/dev/null; then kill -STOP $$; fi; '
                'exec "$@"')
        self.write_job(job__steps=5, coordinator__launch=["sh", "-c", stop, "sh"],
                       network__connect_seconds=30.0, resilience__restarts=1)
        run = self.train()
        deaths = [event["reason"] for event in run.events() if event["event"] == "death"]
        self.assertRegex(deaths[0], r"worker 1 .* did not connect within \d+\.\d s before its "
                                    r"first step: the coordinator waits for a new process")
        self.assertEqual(len(run.metrics()), 5)

    def test_refusals(self):
        self.write_launching_job("tenuto-no-such-program")
        run = self.train(expected=1)
        self.assertIn("cannot start worker 0 (tenuto-no-such-program of coordinator.launch, log ",
                      run.errors)
        self.assertIn("No such file or directory", run.errors)
        self.write_launching_job("sh", "-c", "echo no namespace vc{worker} >&2; exit 3")
        run = self.train("--overwrite", expected=1)
        self.assertRegex(run.errors, r"worker (\d) \(.*\) ended with exit code 3 before its first "
                                     r"step \(its last error: no namespace vc\1\)")
        # What an earlier process wrote to the log is not reported as this one's.
        self.write_launching_job("false")
        run = self.train("--overwrite", expected=1)
        self.assertIn("ended with exit code 1 before its first step", run.errors)
        self.assertNotIn("had said", run.errors)
        self.write_launching_job("")
        self.assertIn("coordinator.launch begins with an empty word", self.train(expected=2).errors)


if __name__ == "__main__":
    unittest.main()
