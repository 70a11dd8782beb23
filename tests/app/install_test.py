"""What `cmake --install` puts into an empty prefix works when source and build tree are gone."""
import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import unittest

import harness
from harness import long_case, busy_case

BUILD = pathlib.Path(os.environ["TENUTO_BUILD"])
SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Seconds: enough for compilers on a busy machine. Fails a test that would hang.
LIMIT = 1500


def call(*words, environment=None, limit=LIMIT, folder=None):
    return subprocess.run([str(word) for word in words], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=limit, cwd=folder,
                          env=environment or os.environ)


def cache(name):
    """A value of the build's CMake cache."""
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split("=", 1)[1]
    return ""


class Prefix(harness.Case):
    """A test with a prefix of its own that the build has been installed into."""

    def setUp(self):
        super().setUp()
        self.prefix = self.folder / "prefix"
        self.right("cmake", "--install", BUILD, "--prefix", self.prefix)
        self.installed = self.prefix / "bin" / "tenuto"

    def right(self, *words, **more):
        done = call(*words, **more)
        self.assertEqual(0, done.returncode, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout


class Install(Prefix):
    def hidden(self, script, before=""):
        """Runs the script in a mount namespace in which the source and build trees are empty."""
        empty = [SOURCE] if SOURCE in BUILD.resolve().parents else [SOURCE, BUILD.resolve()]
        hide = "".join(f"mount -t tmpfs none {shlex.quote(str(tree))}\n" for tree in empty)
        return call("unshare", "-rm", "bash", "-ec", before + hide + script, folder="/",
                    environment={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
                                 "HOME": str(self.folder)})

    def test_it_works_without_the_trees(self):
        if call("unshare", "-rm", "true").returncode != 0:
            self.skipTest("needs user namespaces (unshare -rm) to hide the trees")
        paced = self.hidden(f"{self.installed} train {self.job} --job.steps=3")
        self.assertEqual(0, paced.returncode, paced.stderr)
        example = self.prefix / "share/doc/tenuto/examples/slow-worker.toml"
        shown = self.hidden(f"{self.installed} train {example} --print-config")
        self.assertEqual(0, shown.returncode, shown.stderr)
        bench = self.hidden(f"{self.installed} bench list")
        self.assertEqual(1, bench.returncode)
        self.assertIn("benchmarks are not installed", bench.stderr)
        self.assertNotIn("configure", bench.stderr)

    def test_torch_that_has_moved_is_found_or_asked_for(self):
        self.need_torch()
        if call("unshare", "-rm", "true").returncode != 0:
            self.skipTest("needs user namespaces (unshare -rm) to hide the trees")
        torch = pathlib.Path(cache("Torch_DIR")).resolve().parents[2]
        elsewhere = self.folder / "elsewhere" / "torch"
        move = f"mkdir -p {elsewhere}\nmount --bind {torch} {elsewhere}\n"
        move += f"mount -t tmpfs none {torch}\n"
        text = self.folder / "text"
        text.write_text("The quick brown fox jumps over the lazy dog.\n" * 100)
        train = (f"{self.installed} train {self.job} --device.kind=cpu --data.paths='[\"{text}\"]' "
                 "--job.steps=1 --model.layers=2 --model.width=16 --model.heads=2 "
                 "--model.sequence=16")
        # A Python without torch, and one that has torch at its new place.
        without = self.folder / "without"
        without.write_text("#!/bin/sh\necho\n")
        python = self.folder / "python"
        python.write_text(f"#!/bin/sh\necho {elsewhere}\n")
        for program in (without, python):
            program.chmod(0o755)
        sentence = rf"needs torch \d+\.\d+, and TENUTO_PYTHON is {without}, but .*: name"
        lost = f"export TENUTO_PYTHON={without}\n"
        doctor = self.hidden(lost + f"{self.installed} doctor; {self.installed} --version", move)
        self.assertRegex(doctor.stdout, r"devices +poor +paced devices only")
        self.assertEqual(2, len(re.findall(sentence, doctor.stdout)), doctor.stdout)
        # Next it asks the Python of the build, then python3, which may have any torch or none.
        doctor = self.hidden(f"{self.installed} doctor", move)
        self.assertRegex(doctor.stdout, r"there is no \S+/libtorch.so, .*|libtorch")
        run = self.folder / "run"
        (run / "checkpoint-1").mkdir(parents=True)
        (run / "checkpoint-1" / "manifest.json").write_text("{}")
        for command in (train, f"{self.installed} sample {run}"):
            refused = self.hidden(lost + command, move)
            self.assertEqual(1, refused.returncode, refused.stderr)
            self.assertRegex(refused.stderr, sentence)
            self.assertEqual(1, refused.stderr.count("\n"), refused.stderr)
        self.assertFalse((self.folder / "runs").exists())
        found = self.hidden(f"export TENUTO_PYTHON={python}\n{train}", move)
        self.assertEqual(0, found.returncode, found.stderr)

    def test_documents_man_page_and_completion(self):
        share = self.prefix / "share"
        documents = share / "doc" / "tenuto"
        self.right(sys.executable, SOURCE / "tools" / "tidy.py", documents, "--only", "documents")
        names = {path.name for path in documents.rglob("*")}
        self.assertLessEqual({"LICENSE", "README.md", "tour.md", "quickstart.toml"}, names)
        page = (share / "man" / "man1" / "tenuto.1").read_text()
        help_text = self.right(self.installed, "--help")
        commands = [line.split()[0] for line in help_text.split("Subcommands:")[1].splitlines()
                    if line.startswith("  ") and line[2] != " "]
        self.assertIn("train", commands)
        for command in commands:
            self.assertIn(f".SS tenuto {command}\n", page)
        for kind, name in (("bash", "bash-completion/completions/tenuto"),
                           ("zsh", "zsh/site-functions/_tenuto"),
                           ("fish", "fish/vendor_completions.d/tenuto.fish")):
            self.assertEqual(self.right(self.installed, "completion", kind),
                             (share / name).read_text())

    def completions(self, line):
        script = self.prefix / "share/bash-completion/completions/tenuto"
        words = " ".join(shlex.quote(word) for word in line.split(" "))
        return self.right("bash", "-c", f"compopt() {{ :; }}; . {script}; COMP_WORDS=({words}); "
                          "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tenuto; "
                          'printf "%s\\n" "${COMPREPLY[@]}"', folder=self.folder).split()

    def test_bash_completes(self):
        (self.folder / "runs" / "quickstart").mkdir(parents=True)
        self.assertEqual(["train"], self.completions("tenuto tr"))
        self.assertEqual(["show"], self.completions("tenuto schedule sh"))
        self.assertEqual(["--stages"], self.completions("tenuto schedule show --st"))
        self.assertEqual(["--optimizer.clip="], self.completions("tenuto train --optimizer.cl"))
        self.assertEqual(["quickstart"], self.completions("tenuto status q"))
        self.assertIn("small.toml" if (self.folder / "small.toml").exists() else self.job.name,
                      self.completions("tenuto train " + self.job.name[:2]))

    def test_uninstall_leaves_nothing(self):
        other = self.prefix / "share" / "doc" / "of-another"
        other.write_text("stays")
        command = self.right("ninja", "-C", BUILD, "-t", "commands", "uninstall").splitlines()[-1]
        self.right("sh", "-c", command)
        self.assertEqual([other], [path for path in self.prefix.rglob("*") if not path.is_dir()])
        self.assertEqual([], list(self.prefix.rglob("*tenuto*")))


class Package(Prefix):
    """The libraries in other programs: installed (find_package), or by add_subdirectory."""

    def build_examples(self, source, *options):
        build = self.folder / "build"
        self.right("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                   f"-DCMAKE_CXX_COMPILER={cache('CMAKE_CXX_COMPILER')}", *options)
        self.right("cmake", "--build", build, "-j", "2", "--target", "schedule", "price",
                   "all_reduce")
        program = next(path for path in build.rglob("schedule") if path.is_file()).parent
        self.assertIn("w0: F0.0 ", self.right(program / "schedule", "1f1b", "2", "2"))
        self.assertRegex(self.right(program / "price", "20"), r"(?m)^1f1b +\d+\.\d +\d+\.\d")
        with socket.create_server(("127.0.0.1", 0)) as server:
            meeting = f"127.0.0.1:{server.getsockname()[1]}"
        alone = self.right(program / "all_reduce", meeting, "0", "1",
                           environment={**os.environ, "UCX_MEM_EVENTS": "n"})
        self.assertTrue(alone.startswith("member 0 of 1: 1\n"), alone)

    def compiled_alike(self):
        if harness.SANITIZED:
            self.skipTest("sanitized libraries are for their own build")

    @busy_case
    def test_find_package(self):
        self.compiled_alike()
        # Nothing of the tree is needed: the examples are the installed ones.
        self.build_examples(self.prefix / "share/doc/tenuto/examples",
                            f"-DCMAKE_PREFIX_PATH={self.prefix}")
        commands = (self.folder / "build" / "build.ninja").read_text()
        self.assertNotIn(str(SOURCE) + "/", commands)

    def test_a_version_that_does_not_fit_is_refused(self):
        self.compiled_alike()
        lists = self.folder / "CMakeLists.txt"
        lists.write_text("cmake_minimum_required(VERSION 3.25)\nproject(newer LANGUAGES CXX)\n"
                         "find_package(tenuto 9.0 REQUIRED)\n")
        done = call("cmake", "-S", self.folder, "-B", self.folder / "build", "-G", "Ninja",
                    f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.assertNotEqual(0, done.returncode)
        self.assertIn("version: 0.1.0", done.stderr)

    @long_case
    def test_add_subdirectory(self):
        self.compiled_alike()
        lists = self.folder / "CMakeLists.txt"
        lists.write_text("cmake_minimum_required(VERSION 3.25)\nproject(whole LANGUAGES CXX)\n"
                         f"add_subdirectory({SOURCE} tenuto)\n"
                         f"add_subdirectory({SOURCE}/examples examples)\n")
        self.build_examples(self.folder)
        # Only the libraries are built, nothing else.
        names = {path.name for path in (self.folder / "build").rglob("*")}
        self.assertFalse(names & {"tenuto-worker", "libtenuto_app.a", "libtenuto_control.a"})


if __name__ == "__main__":
    unittest.main()
