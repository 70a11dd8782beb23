"""What every command does with invalid flags, odd files, and outputs that are full."""
import os
import stat
import subprocess
import threading
import unittest

from harness import Case, SANITIZED, TENUTO, another_case

LIMIT = 60
JSON = ("--order", "zb-h1", "--stages", 2, "--micros", 2)


def tenuto(*arguments, **settings):
    settings.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([TENUTO, *map(str, arguments)], text=True, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, timeout=LIMIT, **settings)


class CommandLine(Case):
    def refused(self, code, *arguments, **settings):
        """The one sentence on stderr of a command that ends with this code."""
        told = tenuto(*arguments, **settings)
        self.assertEqual(told.returncode, code, f"{arguments}: {told.stderr}{told.stdout}")
        lines = told.stderr.splitlines()
        self.assertEqual(len(lines), 1, f"{arguments}: {told.stderr}")
        self.assertTrue(lines[0].startswith("tenuto"), lines[0])
        return lines[0]

    def path(self, name):
        return str(self.folder / name)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_a_full_output_is_an_error(self):
        show = ("collective", "show", "--members", 3)
        convert = ("schedule", "convert", *JSON, "--to", "json")
        for arguments in ((*show, "--svg", "/dev/full"),
                          ("simulate", "--page", "/dev/full"), ("simulate", "--trace", "/dev/full"),
                          ("schedule", "show", "--page", "/dev/full"),
                          (*convert, "--out", "/dev/full")):
            told = self.refused(1, *arguments)
            self.assertIn("cannot write /dev/full: No space left on device", told)
        commands = [show, ("--help",), ("--version",), ("simulate", "--json"), convert]
        if not SANITIZED:
            commands += [(*show, "--json"), ("collective", "list"), ("collective", "price"),
                         ("collective", "check"), ("schedule", "list"), ("schedule", "show"),
                         ("simulate",), ("simulate", "--gantt"), ("train", "--help"),
                         ("schedule", "show", "--help")]
        for arguments in commands:
            with open("/dev/full", "w") as full:
                told = self.refused(1, *arguments, stdout=full)
            self.assertIn("cannot write the standard output: No space left", told, arguments)

    @another_case
    def test_a_closed_output_is_an_error(self):
        told = subprocess.run(f"exec '{TENUTO}' simulate --trace '{self.path('trace')}' >&-",
                              shell=True, text=True, stderr=subprocess.PIPE, timeout=LIMIT)
        self.assertEqual(told.returncode, 1, told.stderr)
        self.assertIn("cannot write the standard output", told.stderr)
        # The trace file may get descriptor 1: what is printed must not go into it.
        self.assertTrue((self.folder / "trace").read_text().startswith("{"))

    def test_pipes_devices_and_folders_are_not_read(self):
        os.mkfifo(self.path("pipe"))
        for found, path in (("a pipe", self.path("pipe")), ("a device", "/dev/zero"),
                            ("a folder", str(self.folder)), ("Input/output", "/proc/self/mem")):
            commands = [("schedule", "check", path), ("simulate", path),
                        ("collective", "check", path), ("simulate", "--times", path)]
            if found != "a folder":
                commands.append(("simulate", "--page", self.path("p"), "--measured", path))
            for arguments in commands:
                told = self.refused(2, *arguments)
                self.assertIn(f"cannot read {path}: ", told)
                self.assertIn(found, told)
            told = self.refused(2, "train", path)
            self.assertIn("Input/output" if "proc" in path else "expected a job in TOML", told)
            told = self.refused(2, "train", self.job, f"--parallel.schedule={path}")
            self.assertIn(f"cannot read {path}: ", told)

    def test_output_pipes_and_devices_are_not_replaced(self):
        os.mkfifo(self.path("pipe"))
        read = []
        reader = threading.Thread(
            target=lambda: read.append((self.folder / "pipe").read_text()))
        reader.start()
        tenuto("collective", "show", "--members", 3, "--svg", self.path("pipe"))
        reader.join(LIMIT)
        self.assertTrue(read and read[0].startswith("<svg"), read)
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))
        try:
            os.mknod(self.path("device"), stat.S_IFCHR | 0o600, os.makedev(1, 3))
            open(self.path("device"), "w").close()
        except PermissionError:
            self.skipTest("this user may not make devices")
        tenuto("collective", "show", "--members", 3, "--svg", self.path("device"))
        self.assertTrue(stat.S_ISCHR(os.stat(self.path("device")).st_mode))

    def test_output_links_are_kept_and_followed(self):
        os.symlink("there", self.path("link"))
        tenuto("collective", "show", "--members", 3, "--svg", self.path("link"))
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertTrue((self.folder / "there").read_text().startswith("<svg"))
        both = tenuto("simulate", "--stages", 2, "--trace", "/dev/stdout")
        self.assertEqual(both.returncode, 0, both.stderr)
        self.assertIn("traceEvents", both.stdout)
        self.assertIn("makespan", both.stdout)

    def test_invalid_flag_values_are_refused(self):
        whole = "expected a whole number from "
        for arguments, says in (
                (("sample", "run", "--bytes", "5x"), f"--bytes: {whole}"),
                (("sample", "run", "--bytes", "1e30"), f"--bytes: {whole}"),
                (("sample", "run", "--bytes", "-5"), f"--bytes: {whole}"),
                (("sample", "run", "--temperature", "nan"), "--temperature: expected a number"),
                (("sample", "run", "--seed", "1.5"), f"--seed: {whole}"),
                (("simulate", "--seed", "-1"), f"--seed: {whole}"),
                (("simulate", "--stages", "4x"), "found '4x'"),
                (("simulate", "--stages", "0x10"), "found '0x10'"),
                (("simulate", "--forward-ms", "1,nan"), "found 'nan'"),
                (("simulate", "--forward-ms", "1,,2"), "found an empty entry in '1,,2'"),
                (("simulate", "--link-ms", "inf"), "found 'inf'"),
                (("simulate", "--slow-link", "0:1,0:1,,"), "an empty entry"),
                (("simulate", "--slow-link", "0:1,0:2"), "names link 0 twice"),
                (("simulate", "--slow-worker", "0.1:0.5,0.1:0.6"), "names worker 0.1 twice"),
                (("simulate", "--lost", "0.1,0.1"), "names worker 0.1 twice"),
                (("simulate", "--measured", "nosuch"), "add --page"),
                (("simulate", "--page", ""), "--page: expected a name"),
                (("simulate", "--sync", ""), "--sync: expected a name"),
                (("simulate", "--sync", "x:9"), "expected a count from 1 to 8 with 8 replicas"),
                (("simulate", "--sync", "x:2", "--stages", "4"), "--stages"),
                (("simulate", "--sync", "x:2", "--iteration-ms", "1,2"), "--iteration-ms"),
                (("simulate", "--replicas", "4"), "--sync"),
                (("collective", "price", "--late", "3:nan"), "found '3:nan'"),
                (("collective", "price", "--late", "3:1,3:2"), "names member 3 twice"),
                (("collective", "price", "--late", "3:1,"), "an empty entry"),
                (("collective", "price", "--slow-link", "0-1:0.5,1-0:0.5"), "twice"),
                (("collective", "price", "--slow-link", "0:0.5,0:0.5,,"), "an empty entry"),
                (("collective", "show", "--members", "1e30"), f"--members: {whole}"),
                (("simulate", "--stages"), "--stages"),
                (("simulate", "--stages", "2", "--stages", "3"), "--stages"),
                (("simulate", "--stagess", "2"), "did you mean --stages?"),
                (("simulat",), "did you mean simulate?"),
                (("schedule", "convert", "--order", "1f1b"), "--to is required"),
                (("schedule", "show", "x", "--order", "1f1b"), "file"),
                (("worker", "--coordinator", "a:1", "--job", "x", "--worker", "5x"), "--worker"),
                (("worker", "--coordinator", "a:1,b", "--job", "x", "--worker", "5"),
                 "--coordinator 'a:1,b': expected HOST:PORT"),
                (("launch", "--worker", "0", "x.py"), "give both, or none of them"),
                (("launch", "--coordinator", "a:1", "x.py"), "give both, or none of them"),
                (("launch", "--coordinator", "a:", "--worker", "0", "x.py"),
                 "--coordinator 'a:': expected HOST:PORT"),
                (("launch", "--coordinator", "a:1", "--worker", "0", "--resume", "x.py"),
                 "do not go with --coordinator"),
                (("launch", "--coordinator", "a:1", "--worker", "0", "--token-file",
                  self.path("none"), "x.py"), self.path("none"))):
            self.assertIn(says, self.refused(2, *arguments), arguments)

    def test_long_texts_are_cut(self):
        long = "x" * 5000
        for arguments in (("schedule", "check", long), ("simulate", "--order", long),
                          ("simulate", "--stages", long), (long,), ("simulate", "--" + long),
                          ("collective", "show", "--algorithm", long), ("train", long),
                          ("simulate", "--lost", long), ("status", long), ("sample", long),
                          ("collective", "price", "--late", long), ("inject", long, long)):
            told = self.refused(2, *arguments)
            self.assertLess(len(told), 700, told)
            self.assertIn("...", told)

    def test_numbers_in_a_job_are_checked(self):
        job = self.job
        job.write_text("[job]\nsteps = 1e3\n[device]\nkind = 'paced'\n")
        shown = tenuto("train", job, "--print-config", "--job.keep=1e1")
        self.assertIn("steps = 1000", shown.stdout, shown.stderr)
        self.assertIn("keep = 10", shown.stdout, shown.stderr)
        told = self.refused(2, "train", job, "--job.steps=1.5")
        self.assertIn("found 1.5", told)
        job.write_text("[device]\nkind = 'paced'\nforward_ms = 1e300\n")
        for command in ("train", "simulate"):
            self.assertIn(f"{job}:3:", self.refused(2, command, job))


if __name__ == "__main__":
    unittest.main()
