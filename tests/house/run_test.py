"""./run with fake tools: what it sets up, what it does not do twice, and where it prints."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Each fake tool logs its name and arguments and does the least that ./run needs of it.
TOOLS = {
    "dpkg-query": (
        'shift 2; for name in "$@"; do\n'
        '  [ "$name" = "${MISSING:-}" ] || echo "$name installed"\ndone'
    ),
    "apt-get": "exit 0",
    "id": 'echo "${FAKE_USER:-0}"',
    "cmake": 'echo configured; mkdir -p "build/$2"; touch "build/$2/build.ninja"',
    "ninja": (
        'echo built; mkdir -p "$2/src/app"; program=$2/src/app/tenuto\n'
        "printf '#!/bin/sh\\necho \"$* in $PWD\"\\n' >$program\n"
        "chmod +x $program; exit ${NINJA_FAILS:-0}"
    ),
    # Writes a report like ctest's: 20 tests that took 0 to 19 s.
    "ctest": (
        'echo "tested"; for i in 7 8 9 10 11 12 13 14 15 16 17 18 19 0 1 2 3 4 5 6; do\n'
        '  echo "<testcase name=\\"$2/test.$i\\" time=\\"$i.25\\" status=\\"run\\">"\n'
        'done >$2/tests.xml; exit ${CTEST_FAILS:-0}'
    ),
}


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = os.path.join(self.folder.name, "tree")
        self.log = os.path.join(self.folder.name, "log")
        tools = os.path.join(self.folder.name, "tools")
        environment = os.path.join(self.folder.name, "environment")
        os.makedirs(os.path.join(self.root, "tools"))
        os.makedirs(tools)
        os.makedirs(os.path.join(environment, "bin"))
        shutil.copy(os.path.join(ROOT, "run"), self.root)
        shutil.copytree(os.path.join(ROOT, ".ci"), os.path.join(self.root, ".ci"))
        for name, script in TOOLS.items():
            self.write(os.path.join(tools, name), f'echo "{name} $*" >>{self.log}\n{script}\n')
        # An active environment whose python says that torch is there.
        self.write(os.path.join(environment, "bin", "python"), "exit ${NO_TORCH:-0}\n")
        self.settings = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": self.folder.name,
            "CI": "true",
            "VIRTUAL_ENV": environment,
        }

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)

    def call(self, *arguments, program="run", **settings):
        """The finished process, and the names and arguments of the tools that it called."""
        open(self.log, "w").close()
        done = subprocess.run([os.path.join(self.root, program), *arguments], timeout=50,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              cwd=self.folder.name, env={**self.settings, **settings})
        with open(self.log, encoding="utf-8") as file:
            return done, file.read()

    def test_stdout_is_the_programs_alone(self):
        done, _ = self.call("simulate", "--json", "--stages", "2")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(f"simulate --json --stages 2 in {self.folder.name}\n", done.stdout)

    def test_nothing_is_set_up_twice(self):
        _, first = self.call("train")
        _, second = self.call("train")
        self.assertIn("cmake --preset release", first)
        self.assertNotIn("cmake --preset", second)
        self.assertNotIn("apt-get", first + second)

    def test_another_python_configures_again(self):
        self.call("train")
        other = os.path.join(self.folder.name, "other")
        shutil.copytree(self.settings["VIRTUAL_ENV"], other)
        _, log = self.call("train", VIRTUAL_ENV=other)
        self.assertIn(f"-DTENUTO_PYTHON={other}/bin/python", log)

    def test_missing_package_as_root_is_installed(self):
        done, log = self.call("train", MISSING="ninja-build")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("apt-get install -y --no-install-recommends ninja-build\n", log)

    def test_a_package_that_is_new_configures_again(self):
        self.call("build")
        _, again = self.call("bench", "list")
        _, new = self.call("bench", "list", MISSING="openmpi-bin")
        self.assertNotIn("cmake --preset", again)
        self.assertIn("cmake --preset release", new)

    def test_missing_package_without_root_is_named(self):
        done, log = self.call("train", MISSING="ninja-build", FAKE_USER="1000")
        self.assertEqual(1, done.returncode)
        self.assertIn("type: sudo apt-get install -y --no-install-recommends ninja-build\n",
                      done.stderr)
        self.assertNotIn("cmake --preset", log)

    def test_packages_of_the_tests_are_asked_for_by_tests_alone(self):
        _, train = self.call("train")
        _, test = self.call("test")
        self.assertNotIn("libgtest-dev", train)
        self.assertIn("libgtest-dev", test)
        self.assertIn("ctest --test-dir build/release", test)

    def test_benchmarks_are_built_when_asked_for_and_stay(self):
        _, train = self.call("train")
        _, bench = self.call("bench", "list")
        _, again = self.call("train")
        self.assertIn("-DTENUTO_BENCHMARKS=OFF", train)
        self.assertRegex(bench, r"cmake [^\n]*-DTENUTO_TESTS=OFF -DTENUTO_BENCHMARKS=ON")
        self.assertNotIn("cmake --preset", again)

    def test_without_torch_nothing_of_it_is_asked_for(self):
        # Neither an environment with torch nor a Python that could make one.
        settings = {"TENUTO_TORCH": "OFF", "NO_TORCH": "1", "TENUTO_PYTHON": "/nonexistent"}
        for words in (["train"], ["build"], ["test"], ["bench", "list"], ["test", "--sanitize"]):
            done, log = self.call(*words, **settings)
            self.assertEqual(0, done.returncode, done.stderr)
            configured = re.findall(r"cmake --preset [^\n]*", log)
            self.assertTrue(all("-DTENUTO_TORCH=OFF" in line for line in configured), log)
            self.assertNotIn("build/release", log)
            self.assertNotIn(".venv", done.stderr)
        self.assertIn("ctest --test-dir build/no-torch", self.call("test", **settings)[1])
        self.assertFalse(os.path.exists(os.path.join(self.root, ".venv")))
        done, _ = self.call("train", TENUTO_TORCH="maybe")
        self.assertEqual(1, done.returncode)
        self.assertIn("expected ON or OFF", done.stderr)

    def test_the_python_of_the_setup_is_not_the_one_of_workers(self):
        self.write(os.path.join(self.folder.name, "tools", "ninja"),
                   'mkdir -p "$2/src/app"; cp "$0.tenuto" "$2/src/app/tenuto"\n')
        self.write(os.path.join(self.folder.name, "tools", "ninja.tenuto"),
                   'echo "python: ${TENUTO_PYTHON:-none}"\n')
        done, _ = self.call("doctor", TENUTO_PYTHON="/usr/bin/python3")
        self.assertEqual("python: none\n", done.stdout, done.stderr)

    def test_python_finds_the_package(self):
        python = os.path.join(self.settings["VIRTUAL_ENV"], "bin", "python")
        self.write(python, 'case "$2" in import*) exit 0 ;; esac\necho "$* with $PYTHONPATH"\n')
        done, log = self.call("python", "script.py", "-x")
        self.assertEqual(f"script.py -x with {self.root}/build/release/python\n", done.stdout)
        self.assertRegex(log, r"ninja [^\n]* python_package")
        done, _ = self.call("python", TENUTO_TORCH="OFF")
        self.assertEqual(1, done.returncode)
        self.assertIn("python needs torch", done.stderr)

    def test_options_reach_ctest(self):
        _, log = self.call("test", "-R", "house")
        self.assertIn("-R house\n", log)

    def test_sanitize_runs_both(self):
        _, log = self.call("test", "--sanitize")
        self.assertIn("ctest --test-dir build/asan", log)
        self.assertRegex(log, r"ctest --test-dir build/tsan [^\n]*-L threads")

    def test_long_tests_run_when_asked_for(self):
        self.assertIn(" -LE ^long$ -R house\n", self.call("test", "-R", "house")[1])
        self.assertNotIn("long", self.call("test", "--long", "-R", "house")[1])
        for options in (["--long", "--sanitize"], ["--sanitize", "--long"]):
            log = self.call("test", *options)[1]
            self.assertIn("ctest --test-dir build/asan", log)
            self.assertNotIn("long", log)
        self.assertEqual(2, self.call("test", "--sanitize")[1].count(" -LE ^long$"))

    def test_ci_prints_the_slowest_tests_of_each_build(self):
        self.fuzzer("first", "exit 0")
        done, _ = self.call(program=".ci/run")
        self.assertEqual(0, done.returncode, done.stderr)
        for preset in ("release", "asan", "tsan"):
            part = done.stdout.split(f"== the slowest tests of build/{preset}\n")[1]
            part = part.split("\n==")[0]
            self.assertEqual([f"{seconds:6}.2 s  build/{preset}/test.{seconds}"
                              for seconds in range(19, 4, -1)], part.split("\n"))
        self.assertRegex(done.stdout, r"== tests, release build took \d+ s\n")
        self.assertRegex(done.stdout, r"first +0 inputs[^\n]*\n(.*\n)*== all took \d+ s\n$")

    def test_ci_prints_the_slowest_tests_of_a_build_that_fails_and_ends_there(self):
        done, log = self.call(program=".ci/run", CTEST_FAILS="8")
        self.assertEqual(8, done.returncode, done.stderr)
        self.assertIn("    19.2 s  build/release/test.19\n", done.stdout)
        self.assertNotIn("asan", log)

    def test_as_many_fuzzers_at_once_as_there_are_cores(self):
        # Each fuzzer ends when all have begun: if they ran in turn, the first would never end.
        count = len(os.sched_getaffinity(0))
        begun = os.path.join(self.folder.name, "begun")
        os.mkdir(begun)
        for number in range(count):
            self.fuzzer(f"number{number}", f"touch {begun}/{number}\n"
                        f"until [ $(ls {begun} | wc -l) -eq {count} ]; do sleep 0.01; done")
        done, _ = self.call("fuzz", "1")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(count, done.stdout.count(" inputs"))

    def fuzzer(self, name, script):
        """Writes a fuzzer before the build, because the fake ninja builds none."""
        folder = os.path.join(self.root, "build", "asan", "fuzz")
        os.makedirs(folder, exist_ok=True)
        os.makedirs(os.path.join(self.root, "fuzz"), exist_ok=True)
        open(os.path.join(self.root, "fuzz", f"{name}_fuzz.cc"), "w").close()
        self.write(os.path.join(folder, f"{name}_fuzz"),
                   f'echo "{name} $*" >>{self.log}\n{script}\n')

    def test_every_fuzzer_runs_and_a_finding_ends_with_1(self):
        self.fuzzer("first", "echo it broke; exit 77")
        self.fuzzer("second", "echo 'stat::number_of_executed_units: 12'")
        done, log = self.call("fuzz", "5")
        self.assertEqual(1, done.returncode)
        self.assertIn("it broke", done.stderr)
        self.assertIn("first ended with 77; the input is in build/fuzz/findings/first", done.stderr)
        self.assertRegex(done.stdout, r"second +12 inputs")
        self.assertIn("cmake --preset asan", log)
        self.assertRegex(log, r"second -max_total_time=5 [^\n]* build/fuzz/corpus/second")
        done, log = self.call("fuzz", "5", "second")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertNotIn("first", log)
        self.assertIn("no fuzzer 'third'", self.call("fuzz", "5", "third")[0].stderr)
        self.assertIn("expected seconds", self.call("fuzz", "all")[0].stderr)

    def test_a_failed_build_ends_with_1(self):
        done, _ = self.call("train", NINJA_FAILS="3")
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertIn("building build/release failed", done.stderr)

    def test_works_through_a_link(self):
        link = os.path.join(self.folder.name, "tenuto")
        os.symlink(os.path.join(self.root, "run"), link)
        done = subprocess.run([link, "--version"], timeout=50, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, cwd="/", env=self.settings)
        self.assertEqual("--version in /\n", done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main()
