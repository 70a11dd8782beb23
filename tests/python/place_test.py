"""Which worker a process is, by the environments of torchrun, Slurm and Kubernetes."""
import importlib.util
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load():
    """The module alone: the package around it needs torch."""
    path = ROOT / "python" / "tenuto" / "_place.py"
    found = importlib.util.spec_from_file_location("_place", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


PLACE = load()
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "29500"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "812",
         "SLURM_NODELIST": "node[03-04]"}
POD = {"JOB_COMPLETION_INDEX": "0", "TENUTO_COUNT": "2", "TENUTO_HOST": "train-0.train"}


def place(environment, **more):
    return PLACE.place_of({**environment, **more})


class Places(unittest.TestCase):
    def refused(self, environment, *words):
        with self.assertRaises(ValueError) as caught:
            PLACE.place_of(environment)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_nobody_has_started_several(self):
        self.assertIsNone(PLACE.place_of({"HOME": "/root", "TENUTO_TOKEN": "secret"}))

    def test_torchrun(self):
        self.assertEqual(place(TORCHRUN), (1, 4, "10.0.0.1", 0, 0, "torchrun"))
        self.assertFalse(place(TORCHRUN).starts_coordinator)
        self.assertTrue(place(TORCHRUN, RANK="0").starts_coordinator)
        self.assertEqual(place(TORCHRUN, TORCHELASTIC_RESTART_COUNT="2").restarts, 2)
        self.assertEqual(place(TORCHRUN, TENUTO_PORT="7001").port, 7001)

    def test_slurm(self):
        self.assertEqual(place(SLURM), (3, 4, "node03", 20000 + 812 * 16 % 12000, 0, "Slurm"))
        # Two steps of a job have two ports, and so have two jobs in a row.
        others = [place(SLURM, **more).port
                  for more in ({}, {"SLURM_STEP_ID": "1"}, {"SLURM_JOB_ID": "813"})]
        self.assertEqual(len(set(others)), 3)
        self.assertEqual(place(SLURM, SLURM_RESTART_COUNT="1").restarts, 1)
        # A step may have fewer tasks, on fewer nodes, than its job.
        step = place(SLURM, SLURM_STEP_NUM_TASKS="5", SLURM_STEP_NODELIST="node07")
        self.assertEqual((step.count, step.host), (5, "node07"))

    def test_the_script_of_sbatch_is_no_worker(self):
        batch = {name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}
        self.assertIsNone(PLACE.place_of(batch))

    def test_kubernetes(self):
        self.assertEqual(place(POD), (0, 2, "train-0.train", 7000, 0, "Kubernetes"))
        self.assertEqual(place(POD, JOB_COMPLETION_INDEX="1").rank, 1)

    def test_the_innermost_counts(self):
        self.assertEqual(place({**SLURM, **TORCHRUN}).system, "torchrun")
        self.assertEqual(place({**POD, **TORCHRUN}).system, "torchrun")
        self.assertEqual(place({**POD, **SLURM}).system, "Slurm")

    def test_environments_in_part(self):
        without = {name: value for name, value in TORCHRUN.items() if name != "MASTER_ADDR"}
        self.refused(without, "torchrun in part", "MASTER_ADDR missing", "start the script with")
        self.refused({"WORLD_SIZE": "2"}, "RANK and MASTER_ADDR and MASTER_PORT missing",
                     "WORLD_SIZE set")
        without = {name: value for name, value in SLURM.items() if name != "SLURM_NODELIST"}
        self.refused(without, "Slurm in part", "SLURM_STEP_NODELIST missing", "srun")
        self.refused({"JOB_COMPLETION_INDEX": "1"}, "Kubernetes in part",
                     "TENUTO_COUNT and TENUTO_HOST missing", "examples/kubernetes.yaml")

    def test_wrong_values(self):
        self.refused({**TORCHRUN, "RANK": "-1"}, "RANK is '-1'", "a number from 0")
        self.refused({**TORCHRUN, "RANK": "4"}, "RANK is 4", "WORLD_SIZE is 4")
        self.refused({**TORCHRUN, "MASTER_PORT": "70000"}, "MASTER_PORT is 70000", "65535")
        self.refused({**SLURM, "SLURM_PROCID": "4"}, "SLURM_PROCID is 4", "SLURM_NTASKS is 4")
        self.refused({**POD, "TENUTO_COUNT": "two"}, "TENUTO_COUNT is 'two'")

    def test_another_number_of_workers(self):
        job = {"stages": 2, "pipelines": 3}
        with self.assertRaisesRegex(ValueError, "torchrun has started 4 processes, and the job "
                                                "has 6 workers .*: start 6, or change the job"):
            PLACE.check_count(place(TORCHRUN), job)
        PLACE.check_count(place(TORCHRUN, WORLD_SIZE="6"), job)

    def test_how_a_start_begins(self):
        """The first start takes the user's flags; a later one goes on, or begins once more."""
        for flags, restarts, newest, expected in (
                ([], 0, None, []),
                ([], 0, 7, []),
                (["--overwrite"], 0, 7, ["--overwrite"]),
                (["--resume"], 0, 7, ["--resume"]),
                (["--resume", "--json"], 0, None, ["--json"]),
                ([], 1, None, ["--overwrite"]),
                (["--overwrite", "--json"], 1, 7, ["--json", "--resume", "--from-step", "7"]),
                (["--resume"], 2, 7, ["--resume", "--from-step", "7"])):
            self.assertEqual(PLACE.flags_of(flags, restarts, newest), expected)

    def test_how_the_script_has_it_begin(self):
        for flags, restarts, newest, resume, expected in (
                (["--json"], 0, 7, True, ["--json", "--resume", "--from-step", "7"]),
                (["--json"], 0, None, True, ["--json", "--overwrite"]),
                (["--resume", "--from-step", "3"], 0, 7, True, ["--resume", "--from-step", "3"]),
                (["--resume"], 0, None, True, []),
                (["--overwrite"], 0, 7, False, ["--overwrite"]),
                ([], 0, 7, False, []),
                ([], 1, 7, False, ["--resume", "--from-step", "7"])):
            self.assertEqual(PLACE.flags_of(flags, restarts, newest, resume), expected)
        for resume, flag, words in ((True, "--overwrite", "--overwrite in TENUTO_FLAGS replaces"),
                                    (False, "--resume", "--resume in TENUTO_FLAGS continues")):
            with self.assertRaisesRegex(ValueError, rf"fit\(resume={resume}\), and {words}"):
                PLACE.flags_of([flag], 0, 7, resume)

    def test_runs_without_a_step_left(self):
        """Nobody waits for a coordinator that has nothing to do."""
        for flags, newest, done in ((["--resume"], 8, True), (["--resume"], 9, True),
                                    (["--resume"], 7, False), (["--resume"], None, False),
                                    ([], 8, False), (["--overwrite"], 8, False),
                                    (["--resume", "--from-step", "8"], 8, True),
                                    (["--resume", "--from-step", "3"], 8, False),
                                    (["--from-step=3", "--resume"], 8, False)):
            self.assertEqual(PLACE.is_done(flags, newest, 8), done, (flags, newest))

    def test_first_hosts(self):
        for nodes, host in (("a", "a"), ("a,b", "a"), ("node[03-05,9],x", "node03"),
                            ("node[7,9-11]", "node7"), ("rack[1-2]n[3-4]", "rack1n3")):
            self.assertEqual(PLACE.first_host(nodes), host)
        for nodes in ("node[3", "node3]", "", ",b", "node[]"):
            with self.assertRaisesRegex(ValueError, "cannot be read"):
                PLACE.first_host(nodes)


if __name__ == "__main__":
    unittest.main()
