"""The package as a user installs it: what it says when something does not fit, and the wheel."""
import email
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import unittest
import zipfile

from harness import Case, long_case

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TENUTO_BUILD"])
PYTHON = os.environ["TENUTO_TORCH_PYTHON"]
PACKAGE = pathlib.Path(os.environ["TENUTO_PACKAGE"])
# Seconds: enough for a torch that is imported, or a compiler, on a busy machine.
LIMIT = 300
BUILD_LIMIT = 3000
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def version():
    """The version of the project, which CMakeLists.txt alone states."""
    return re.search(r"project\(tenuto VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]


def call(*words, limit=LIMIT, **environment):
    """Runs a program in an environment without paths of Python's but those given."""
    clean = {name: value for name, value in os.environ.items()
             if name not in ("PYTHONPATH", "TENUTO_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX")}
    return subprocess.run([str(word) for word in words], text=True, capture_output=True, cwd="/",
                          stdin=subprocess.DEVNULL, timeout=limit, env={**clean, **environment})


class Refusals(Case):
    """The package's own files with stand-ins for torch and the extension: they load at once."""

    def setUp(self):
        super().setUp()
        self.package = self.folder / "tenuto"
        shutil.copytree(ROOT / "python" / "tenuto", self.package)
        self.write("tenuto/_built.py",
                   f'VERSION = "1.2.3"\nTORCH = "2.13.0"\nSUFFIX = "{SUFFIX}"\n')
        self.write("torch/__init__.py", '__version__ = "2.13.1+cpu"\n')
        self.write("tenuto/_tenuto.py", "")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def python(self, code):
        """Runs code in a Python that has no packages but those of the test's folder."""
        return call(sys.executable, "-S", "-c", code, PYTHONPATH=str(self.folder))

    def refused(self, *words):
        """Expects that the name everybody imports is refused, in one sentence with these words."""
        done = self.python("import tenuto\nfrom tenuto import Pipeline")
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertEqual(1, done.stderr.count("Traceback"), done.stderr)
        sentence = done.stderr.splitlines()[-1]
        self.assertTrue(sentence.startswith("ImportError: "), done.stderr)
        for word in words:
            self.assertIn(word, sentence)

    def test_what_fits_passes(self):
        done = self.python("from tenuto import _extension; _extension.check(); import tenuto; "
                           "print(tenuto.__version__)")
        self.assertEqual((0, "1.2.3\n"), (done.returncode, done.stdout), done.stderr)

    def test_another_torch(self):
        self.write("torch/__init__.py", '__version__ = "2.12.0+cpu"\n')
        self.refused("built against torch 2.13.0", "has 2.12.0+cpu", "'torch==2.13.*'")

    def test_no_torch(self):
        shutil.rmtree(self.folder / "torch")
        self.refused("tenuto needs torch 2.13, and", "has none", "pip install 'torch==2.13.*'")

    def test_a_fault_within_torch_is_not_hidden(self):
        self.write("torch/__init__.py", "import of_torch_that_is_missing\n")
        done = self.python("from tenuto import Pipeline")
        self.assertIn("No module named 'of_torch_that_is_missing'", done.stderr)

    def test_no_extension(self):
        (self.package / "_tenuto.py").unlink()
        self.refused(f"the extension _tenuto{SUFFIX} is missing in {self.package}", "./run build")

    def test_another_python(self):
        self.write("tenuto/_built.py",
                   'VERSION = "1.2.3"\nTORCH = "2.13.0"\nSUFFIX = ".cpython-20-none.so"\n')
        self.refused("built for another Python (.cpython-20-none.so", "pip install .")

    def test_a_source_tree(self):
        (self.package / "_built.py").unlink()
        self.refused("is the source of tenuto", "pip install .")

    def test_missing_libraries(self):
        for library, advice in (("libgrpc++.so.1.51", "apt-get install libgrpc++-dev"),
                                ("libprotobuf.so.32", "apt-get install libprotobuf-dev"),
                                ("libucp.so.0", "apt-get install libucx-dev"),
                                ("libother.so.1", "docs/dependencies.md")):
            self.write("tenuto/_tenuto.py",
                       f'raise ImportError("{library}: cannot open shared object file: '
                       'No such file or directory")\n')
            self.refused(f"needs the shared library {library}, ", advice)
        self.write("tenuto/_tenuto.py", 'raise ImportError("x.so: undefined symbol: _ZN2at1xE")\n')
        self.refused("undefined symbol: _ZN2at1xE", "pip install .")

    def test_the_package_loads_nothing_heavy(self):
        self.write("torch/__init__.py", "raise SystemExit('torch is loaded')\n")
        self.write("tenuto/_tenuto.py", "raise SystemExit('the extension is loaded')\n")
        done = self.python("import tenuto; print(sorted(tenuto.__all__)); dir(tenuto); "
                           "print(hasattr(tenuto, 'no_such_name'))")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("'Pipeline'", done.stdout)
        self.assertTrue(done.stdout.endswith("False\n"), done.stdout)

    def test_a_build_without_a_torch_that_it_can_use(self):
        find = ROOT / "cmake" / "find_torch.py"
        shutil.rmtree(self.folder / "torch")
        empty = self.folder / "script" / "empty.py"
        # As in pip's environment: no packages to import, but the folder that Python would name.
        self.write("script/empty.py", "import runpy, sysconfig\n"
                   f"sysconfig.get_path = lambda kind: {str(self.folder)!r}\n"
                   f"runpy.run_path({str(find)!r}, run_name='__main__')\n")
        done = call(sys.executable, "-S", empty)
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stderr, r"^Tenuto needs torch 2\.11 or newer, and this Python "
                                      "has none")
        self.write("torch/version.py", "__version__ = '2.10.1+cpu'\n")
        done = call(sys.executable, "-S", empty)
        self.assertRegex(done.stderr, r"^Tenuto needs torch 2\.11 or newer, and \S+ has "
                                      r"2\.10\.1\+cpu")
        self.write("torch/version.py", "__version__ = '2.13.0'\n")
        self.assertIn("has no CMake package", call(sys.executable, "-S", empty).stderr)
        package = self.folder / "torch" / "share" / "cmake" / "Torch"
        package.mkdir(parents=True)
        done = call(sys.executable, "-S", empty)
        self.assertEqual((0, f"{package}\n"), (done.returncode, done.stdout), done.stderr)

    def test_the_program_of_a_wheel(self):
        main = ("import sys; sys.argv = ['tenuto', 'a b', 'c']\n"
                "from tenuto._program import main; main()")
        done = self.python(main)
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stderr, r"^tenuto: cannot start \S+/bin/tenuto \(No such file")
        self.write("tenuto/bin/tenuto", '#!/bin/sh\necho "$1|$2|$TENUTO_PYTHON"\n')
        (self.package / "bin" / "tenuto").chmod(0o755)
        done = self.python(main)
        self.assertEqual(f"a b|c|{sys.executable}\n", done.stdout, done.stderr)
        # The tools run the same one.
        self.write("tenuto/bin/tenuto", '#!/bin/sh\necho "{\\"words\\": \\"$*\\"}"\n')
        done = self.python("import tenuto; print(tenuto.simulate(stages=2)['words'])")
        self.assertEqual("simulate --json --stages=2\n", done.stdout, done.stderr)


class Built(Case):
    """The package of the build tree, and of the folder that CMake installs it into."""

    def test_import_before_and_after_torch(self):
        for first, second in (("tenuto", "torch"), ("torch", "tenuto")):
            done = call(PYTHON, "-c", f"import {first}, {second}\nfrom tenuto import Pipeline\n"
                        "print(tenuto.__version__, Pipeline.__name__, torch.ones(2).sum().item())",
                        PYTHONPATH=str(PACKAGE))
            self.assertEqual((0, f"{version()} Pipeline 2.0\n"), (done.returncode, done.stdout),
                             done.stderr)

    def test_one_version_everywhere(self):
        text = (ROOT / "pyproject.toml").read_text()
        pattern = re.search(r"^regex = '(.*)'$", text, re.M)[1]
        self.assertEqual(version(),
                         re.search(pattern, (ROOT / "CMakeLists.txt").read_text())["value"])
        self.assertIn('dynamic = ["version"]', text)
        self.assertNotRegex(text, r"(?m)^version *=")
        self.assertIn(f'VERSION = "{version()}"', (PACKAGE / "tenuto" / "_built.py").read_text())
        said = call(os.environ["TENUTO"], "--version")
        self.assertIn(version(), said.stdout)

    def test_torch_is_no_requirement_of_the_build(self):
        requires = re.search(r"^requires = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.M)
        self.assertNotIn("torch", requires[1])
        self.assertIn("scikit-build-core", requires[1])

    def test_every_file_of_the_package_is_built(self):
        sources = {path.name for path in (ROOT / "python" / "tenuto").iterdir() if path.is_file()}
        built = {path.name for path in (PACKAGE / "tenuto").iterdir() if path.is_file()}
        # A build that is not new may also have files of the past.
        self.assertLessEqual(sources | {"_built.py", f"_tenuto{self.suffix()}"}, built)

    def suffix(self):
        """The suffix of extensions of the Python with torch."""
        return call(PYTHON, "-c", "import sysconfig as s; print(s.get_config_var('EXT_SUFFIX'))"
                    ).stdout.strip()

    def test_the_installed_tree_is_used(self):
        prefix = self.folder / "prefix"
        # Each component has a list of its own, so this does not meet other tests that install.
        for component in ("programs", "python"):
            done = call("cmake", "--install", BUILD, "--prefix", prefix, "--component", component)
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        said = call(prefix / "bin" / "tenuto", "--version")
        self.assertEqual(0, said.returncode, said.stderr)
        self.assertIn(version(), said.stdout)
        self.assertFalse((prefix / "include").exists())
        script = self.folder / "script.py"
        script.write_text("import tenuto\nprint(tenuto.__file__)\nfrom tenuto import Pipeline\n")
        done = call(PYTHON, script, PYTHONPATH=str(prefix / "lib" / "tenuto" / "python"))
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertTrue(done.stdout.startswith(str(prefix)), done.stdout)
        # The installed program shows its scripts the installed package.
        script.write_text("import sys, tenuto\nsys.exit(f'package {tenuto.__file__}')\n")
        done = call(prefix / "bin" / "tenuto", "launch", "--python", PYTHON, script)
        self.assertIn(f"package {prefix}/", done.stderr)

    def test_python_sees_the_entry_alone(self):
        library = PACKAGE / "tenuto" / f"_tenuto{self.suffix()}"
        done = call("nm", "-D", "--defined-only", library)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("PyInit__tenuto", done.stdout)
        self.assertNotRegex(done.stdout, "protobuf|grpc")


class Wheel(Case):
    """`pip wheel .` with pip's own environment, installed into an environment of its own."""

    @long_case
    def test_wheel(self):
        wheels = self.folder / "wheels"
        done = call(PYTHON, "-m", "pip", "wheel", ROOT, "--no-deps", "--wheel-dir", wheels,
                    limit=BUILD_LIMIT)
        if "No matching distribution found for scikit-build-core" in done.stderr:
            self.skipTest("pip cannot fetch scikit-build-core from a package index")
        self.assertEqual(0, done.returncode, done.stdout[-4000:] + done.stderr[-4000:])
        wheel, = wheels.glob("*.whl")
        self.assertTrue(wheel.name.startswith(f"tenuto-{version()}-cp"), wheel.name)
        self.assertLess(wheel.stat().st_size, 10_000_000)
        with zipfile.ZipFile(wheel) as content:
            names = content.namelist()
            about = email.message_from_bytes(
                content.read(f"tenuto-{version()}.dist-info/METADATA"))
        self.assertEqual(version(), about["Version"])
        self.assertIsNone(about["Requires-Dist"])
        tops = {name.split("/")[0] for name in names}
        self.assertEqual({"tenuto", f"tenuto-{version()}.dist-info"}, tops)
        self.assertLessEqual({"tenuto/bin/tenuto", "tenuto/_tenuto.pyi", "tenuto/py.typed"},
                             set(names))
        self.install_and_use(wheel)

    def install_and_use(self, wheel):
        """Installs into a new environment, beside a link to torch and what torch needs."""
        environment = self.folder / "environment"
        done = call(PYTHON, "-m", "venv", environment)
        self.assertEqual(0, done.returncode, done.stderr)
        python = environment / "bin" / "python"
        done = call(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel)
        self.assertEqual(0, done.returncode, done.stderr)
        tenuto = environment / "bin" / "tenuto"
        said = call(tenuto, "--version")
        self.assertEqual(0, said.returncode, said.stderr)
        self.assertIn(version(), said.stdout)
        done = call(python, "-c", "from tenuto import Pipeline")
        self.assertIn("has none: type pip install 'torch==", done.stderr)
        # Not a copy: torch has hundreds of megabytes.
        find = "import sysconfig; print(sysconfig.get_path('purelib'))"
        theirs = call(PYTHON, "-c", find).stdout.strip()
        ours = pathlib.Path(call(python, "-c", find).stdout.strip())
        (ours / "torch-of-the-test.pth").write_text(theirs + "\n")
        for first, second in (("tenuto", "torch"), ("torch", "tenuto")):
            done = call(python, "-c", f"import {first}, {second}\nfrom tenuto import Pipeline\n"
                        "print(tenuto.__file__)")
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertTrue(done.stdout.startswith(str(environment)), done.stdout)
        dynamic = call("readelf", "-d", *(ours / "tenuto").glob("_tenuto*.so")).stdout
        self.assertIn("[$ORIGIN/../torch/lib]", dynamic)
        example = ROOT / "examples" / "bring_your_model.py"
        done = call(tenuto, "launch", f"--job.directory={self.folder / 'runs'}", "--job.steps=2",
                    "--optimizer.warm_up_steps=0", example)
        self.assertEqual(0, done.returncode, done.stderr)


if __name__ == "__main__":
    unittest.main()
