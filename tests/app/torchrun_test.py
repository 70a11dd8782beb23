"""Scripts that torchrun starts, with no change in them."""
import json
import os
import subprocess

from harness import Run
from package_test import PACKAGE, PYTHON, SCRIPT, Launch


class Torchrun(Launch):
    def torchrun(self, *words):
        """Trains a script to its end in two processes."""
        settings = [f"job.directory={self.folder / 'runs'}", "job.name=torchrun"]
        process = subprocess.Popen(
            [PYTHON, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
             "--nproc-per-node", "2", str(SCRIPT), *words],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": PACKAGE, "TENUTO_OVERRIDES": json.dumps(settings)})
        run = Run(process, self.folder / "runs" / "torchrun")
        self.addCleanup(self.clean_up, run)
        code = run.finish()
        self.assertEqual(code, 0, f"stderr: {run.errors}\nstdout: {run.output}")
        return run

    def test_a_script_under_torchrun_trains_as_launched(self):
        """Two processes, one of which starts the coordinator; the losses are those of `launch`."""
        self.write_module_job(parallel__stages=2, parallel__pipelines=1)
        losses = self.losses(self.torchrun("linear", str(self.job)))
        self.assertEqual(sorted(losses), list(range(6)))
        self.assertEqual(losses, self.losses(self.launch_model("linear", name="launched")))
        # With fit(resume=True) the run would go on, and has nothing left to do.
        again = self.torchrun("linear", str(self.job), "resume")
        self.assertIn("all 6 steps of this run are done", again.errors)
        self.assertEqual(self.losses(again), losses)
