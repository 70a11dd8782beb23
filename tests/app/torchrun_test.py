"""Scripts that torchrun starts, with no change in them."""
import json
import os
import signal
import subprocess

from harness import Run
from package_test import PACKAGE, PYTHON, SCRIPT, Launch


class Torchrun(Launch):
    def torchrun(self, *words):
        """Starts a script in two processes."""
        settings = [f"job.directory={self.folder / 'runs'}", "job.name=torchrun"]
        process = subprocess.Popen(
            [PYTHON, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
             "--nproc-per-node", "2", str(SCRIPT), *words],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": PACKAGE, "TENUTO_OVERRIDES": json.dumps(settings)})
        run = Run(process, self.folder / "runs" / "torchrun")
        self.addCleanup(self.clean_up, run)
        return run

    def test_a_script_under_torchrun_trains_as_launched(self):
        """Two processes, one of which starts the coordinator; the losses are those of `launch`."""
        self.write_module_job(parallel__stages=2, parallel__pipelines=1)
        run = self.torchrun("linear", str(self.job))
        code = run.finish()
        self.assertEqual(code, 0, f"stderr: {run.errors}\nstdout: {run.output}")
        losses = self.losses(run)
        self.assertEqual(sorted(losses), list(range(6)))
        launched = self.launch_model("linear", name="launched")
        self.assertEqual(losses, self.losses(launched))
        for each in (run, launched):
            self.assertIn("has worker 0 (stage 0 of pipeline 0), worker 1 (stage 1 of pipeline 0)",
                          each.output)
        # With fit(resume=True) the run would go on, and has nothing left to do.
        again = self.torchrun("linear", str(self.job), "resume")
        self.assertEqual(again.finish(), 0, again.errors)
        self.assertIn("all 6 steps of this run are done", again.errors)
        self.assertEqual(self.losses(again), losses)

    def test_a_stopped_torchrun_leaves_a_state_to_go_on_from(self):
        """torchrun passes SIGTERM to all its processes; SIGUSR1 goes to that of rank 0 alone."""
        self.write_module_job(parallel__stages=2, parallel__pipelines=1, job__steps=1000000,
                              job__checkpoint_every=0)
        run = self.torchrun("linear", str(self.job))
        run.wait_for_steps(2)
        os.kill(self.process_of_rank(run, 0), signal.SIGUSR1)
        self.wait_for_event(run, "asked for a checkpoint")
        run.wait_until(run.checkpoints, "a checkpoint")
        run.process.terminate()
        self.assertNotEqual(run.finish(), 0)
        self.wait_for_event(run, "stopped by signal 15: all workers stop at version")
        self.assertEqual(run.checkpoints()[-1], len(run.metrics()))

    def process_of_rank(self, run, rank):
        """The process that torchrun has started with this rank."""
        children = f"/proc/{run.process.pid}/task/{run.process.pid}/children"
        with open(children, encoding="utf-8") as listed:
            for process in listed.read().split():
                with open(f"/proc/{process}/environ", "rb") as entries:
                    if f"RANK={rank}".encode() in entries.read().split(b"\0"):
                        return int(process)
        raise AssertionError(f"torchrun has no process of rank {rank}")
