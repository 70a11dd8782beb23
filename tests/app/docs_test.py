"""Every command that the documents show is run here, or by the test that a table names."""
import gzip
import pathlib
import re
import shlex
import subprocess
import unittest

from harness import LIMIT, TENUTO, Case, another_case, long_case

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
             ROOT / "fuzz" / "README.md"]
# How a line of a block begins that somebody would type.
TYPED = re.compile(r"(?:[A-Z_]+=\S+ +)*(?:\./run|\.ci/run|tools/\S+|tenuto|cmake|ninja|pip|python3?"
                   r"|torchrun|sbatch|srun|kubectl|git|curl|sudo|apt-get) ")

# Each command, and the test that runs it: a file of the tree and words in that file.
ELSEWHERE = {
    "./run test": ("tests/house/run_test.py", "test_nothing_is_set_up_twice"),
    "./run test --long": ("tests/house/run_test.py", "test_long_tests_run_when_asked_for"),
    "./run test -R world": ("tests/house/run_test.py", "test_options_reach_ctest"),
    "./run test --sanitize": ("tests/house/run_test.py", "test_sanitize_runs_both"),
    "TENUTO_TORCH=OFF ./run test": ("tests/house/run_test.py",
                                    "test_without_torch_nothing_of_it_is_asked_for"),
    "./run build": ("tests/house/run_test.py", "test_without_torch_nothing_of_it_is_asked_for"),
    "./run fuzz": (".ci/run", "./run fuzz 10"),
    "./run fuzz 60": (".ci/run", "./run fuzz 10"),
    "./run fuzz 600 plan": ("tests/house/run_test.py", 'self.call("fuzz", "5", "second")'),
    "cmake --preset release -DTENUTO_PYTHON=/path/to/a/python/that/has/torch":
        ("run", 'cmake --preset "$preset"'),
    "ninja -C build/release": ("run", 'ninja -C "$folder"'),
    "cmake --install build/release --prefix /usr/local":
        ("tests/app/install_test.py", '"cmake", "--install", BUILD, "--prefix"'),
    "./run python -m pip wheel . --no-deps": ("tests/app/wheel_test.py", '"wheel"'),
    "./run launch -n 4 examples/bring_your_model.py":
        ("tests/app/package_test.py", 'EXAMPLES / "bring_your_model.py"'),
    "./run launch -n 4 examples/huggingface.py --model gpt2":
        ("tests/app/huggingface_test.py", 'EXAMPLES / "huggingface.py"'),
    "./run python examples/huggingface.py --model gpt2 --export runs/huggingface gpt2-trained":
        ("tests/app/huggingface_test.py", '"--export", run.folder'),
    "./run train examples/bad-day.toml":
        ("tests/app/bad_day_test.py", "test_a_gpt_learns_through_a_bad_day"),
    "./run train examples/bad-day.toml --device.kind=paced":
        ("tests/app/bad_day_test.py", '"--device.kind=paced"'),
    "./run simulate examples/bad-day.toml --iterations 240":
        ("tests/app/bad_day_test.py", '"simulate", str(EXAMPLE), "--iterations"'),
    "./run bench slow-worker": ("tests/app/slow_worker_test.py", '"slow-worker"'),
    "./run python bench/compare/pipelines.py": ("tests/app/compare_test.py", '"pipelines.py"'),
    "./run python bench/compare/after_a_kill.py":
        ("tests/app/compare_test.py", '"after_a_kill.py"'),
    "./run python bench/compare/late_rank.py": ("tests/app/compare_test.py", '"late_rank.py"'),
    "./run python bench/compare/python_modules.py":
        ("tests/app/compare_test.py", '"python_modules.py"'),
    "./run plan --model model.json --cluster cluster.json --rows 128 --plan plan.json":
        ("tests/app/plan_command_test.cc", "--rows"),
    "tools/virtual_cluster alone bash": ("tests/app/namespaces_test.py", '"alone"'),
    "tools/virtual_cluster up 4 1000": ("tests/app/namespaces_test.py", 'cluster("up", 4'),
    "tools/virtual_cluster link 1 2 25": ("tests/app/namespaces_test.py", 'cluster("link", 0, 1'),
    "tools/virtual_cluster unlink 1 2": ("tests/app/namespaces_test.py", 'cluster("unlink", 0, 1'),
    "tools/virtual_cluster cut 1 2": ("tests/app/namespaces_test.py", 'cluster("cut", 1, 3)'),
    "tools/virtual_cluster cut 3":
        ("tests/app/namespaces_test.py", 'cluster("cut", 1)'),
    "tools/virtual_cluster exec hub tenuto train job.toml --network.device=eth0 "
    "--network.protocol=eager --coordinator.listen=10.77.0.254:0 "
    """'--coordinator.launch=["ip","netns","exec","vc{worker}"]' &""":
        ("tests/app/namespaces_test.py", '[CLUSTER, "exec", "hub", TENUTO, "train"'),
    "tools/virtual_cluster down": ("tests/app/namespaces_test.py", 'cluster("down")'),
}
# Whole documents that a test runs from their first line to the last.
GUIDES = {"docs/several-hosts.md": ("tests/app/several_hosts_test.py", "several-hosts.md"),
          "docs/script-on-hosts.md": ("tests/app/script_hosts_test.py", "script-on-hosts.md")}
# Lines that look like commands but are none: the form of a command, or the first line of a file.
NO_COMMANDS = {
    "tenuto launch [-n N] [--python PYTHON] [--resume | --overwrite] [--section.key=value ...] "
    "SCRIPT ...",
    "tenuto host ledger 1",
    "tenuto chooser 1",
}

# The commands that this file runs, in turn, in one folder for each test. After `+` come words that
# the test adds, so that it takes seconds.
QUICK = {
    "test_schedules": [
        "./run schedule show --order zb-h1 --stages 4 --micros 6",
        "tenuto schedule show --pipelines 2 --stages 2 --micros 2 --order 1f1b",
        "./run simulate --order 1f1b --stages 8 --micros 32 --slow-link 3:20",
        "TENUTO_TORCH=OFF ./run simulate --order zb-h1 --stages 8 --micros 32",
        "./run collective list",
        "./run collective show --algorithm late-one --members 5 --late 4 --svg rounds.svg",
        "./run collective price --members 8 --bytes 67108864 --late 3:20 --algorithm auto",
        "./run simulate --sync auto --replicas 8 "
        "--iteration-ms 100,100,100,100,100,100,100,400 --apply-ms 1 --jitter-percent 5",
        "./run simulate --sync synchronous --replicas 4 --gradient-mb 10 "
        "--port-mb-per-second 100",
    ],
    "test_tuning": [
        "./run simulate --order 1f1b --stages 4 --micros 4",
        "./run simulate --order 1f1b --stages 4 --micros 16",
        "./run simulate --order zb-h1 --stages 4 --micros 16",
        "./run simulate --order auto --stages 4 --micros 16 --link-ms 2 --memory 6",
    ],
    "test_plans": [
        "./run plan --chain examples/planner/gpt.chain --cluster examples/planner/two-nodes.json "
        "--micros 16",
        "./run plan --chain examples/planner/gpt.chain --cluster examples/planner/two-nodes.json "
        "--micros 16 --plan plan.json --html plan.html",
        "./run plan --chain examples/planner/gpt.chain --cluster examples/planner/two-nodes.json "
        "--micros 16 --plan plan.json",
        "./run simulate plan.json --chain examples/planner/gpt.chain "
        "--cluster examples/planner/two-nodes.json",
        "./run train examples/planner/planned.toml --parallel.plan=plan.json + --job.steps=3",
    ],
    "test_rehearsals": [
        "TENUTO_TORCH=OFF ./run train examples/paced.toml + --job.trace_steps=[10]",
        "./run analyze runs/paced --picture heat.svg",
        "./run analyze timeline.json.gz --json",
    ],
}
# These take longer than a run of the tests of each change may.
SLOW = {
    "test_quick_start": [
        "./run train examples/quickstart.toml",
        "./run sample quickstart",
    ],
    "test_a_measured_plan": [
        "./run profile examples/quickstart.toml --out measured",
        "./run plan --chain measured/model.json --cluster measured/cluster.json --micros 4 "
        "--plan measured/plan.json",
        "./run train examples/quickstart.toml --parallel.plan=measured/plan.json",
    ],
    "test_weeks": [
        "tenuto simulate --days 7 --stages 32 --pipelines 512 --micros 64 --forward-ms 30 "
        "--backward-input-ms 30 --backward-weight-ms 30 --link-ms 1 --cross-ms 3 "
        "--spare-micros 16 --picture week.svg",
    ],
    "test_sync_modes": [
        "./run train examples/sync/servers.toml",
        "./run train examples/sync/peers.toml",
    ],
    "test_benchmarks": [
        "./run bench list",
        "./run bench paced",
        './run bench sync --scenario slow-link,examples/sync/scenarios/mixed.toml '
        '--mode "synchronous;look-ahead"',
        "./run bench sync --choosers --scenario slow-link,random --write-chooser eight.txt",
        './run bench sync --chooser eight.txt --scenario slow-link '
        '--mode "learned;asynchronous;synchronous"',
        './run bench sync --processes --scenario slow-link '
        '--mode "synchronous;groups;look-ahead" --length 20',
    ],
}


def commands():
    """Each command of the documents as (document, line, command without its comment)."""
    for document in DOCUMENTS:
        name = str(document.relative_to(ROOT))
        language, line, begun = None, 0, ""
        for number, text in enumerate(document.read_text().splitlines(), 1):
            text = text.strip()
            if text.startswith("```"):
                language, begun = (text[3:] if language is None else None), ""
                continue
            if language not in ("", "sh", "bash"):
                continue
            if not begun:
                line, text = number, text.removeprefix("$ ")
                if not TYPED.match(text + " "):
                    continue
            begun = f"{begun} {text}".strip()
            if begun.endswith("\\"):
                begun = begun[:-1].strip()
                continue
            yield name, line, re.sub(r"\s+#.*", "", begun)
            begun = ""


def run_here():
    """The commands that this file runs, without the words that it adds."""
    return {command.split(" + ")[0] for table in (QUICK, SLOW)
            for listed in table.values() for command in listed}


class Documents(unittest.TestCase):
    def test_every_command_is_run(self):
        known = {*ELSEWHERE, *NO_COMMANDS, *run_here()}
        faults = [f"{name}:{line}: no test runs `{command}`: add it to a table of "
                  "tests/app/docs_test.py"
                  for name, line, command in commands()
                  if name not in GUIDES and command not in known]
        self.assertEqual([], faults, "\n".join(faults))

    def test_the_tables_have_no_commands_of_the_past(self):
        shown = {command for _, _, command in commands()}
        self.assertLess(40, len(shown))
        self.assertEqual(set(), {*ELSEWHERE, *NO_COMMANDS, *run_here()} - shown)

    def test_the_tests_that_are_named_are_there(self):
        for command, (file, words) in {**ELSEWHERE, **GUIDES}.items():
            self.assertTrue((ROOT / file).is_file(), f"{command}: there is no {file}")
            self.assertIn(words, (ROOT / file).read_text(), f"{command}: {file}")

    def test_each_list_has_its_test(self):
        for table, case in ((QUICK, Quick), (SLOW, Slow)):
            self.assertEqual(set(table), {name for name in dir(case) if name.startswith("test_")})


class Commands(Case):
    """A test whose folder has what the commands need of a fresh clone: the examples."""

    table = {}
    limit = LIMIT

    def setUp(self):
        super().setUp()
        (self.folder / "examples").symlink_to(ROOT / "examples")

    def need_text(self):
        """Skips the test where the text that the examples learn from is not there."""
        self.need_torch()
        if not pathlib.Path("/usr/share/games/fortunes").exists():
            self.skipTest("the examples learn from Debian's package fortunes, which is not here")

    def type(self, command):
        """Runs one command as somebody would who typed it, and expects that it succeeds."""
        shown, _, added = command.partition(" + ")
        words = [word for word in shlex.split(shown) if not word.startswith("TENUTO_TORCH=")]
        self.assertIn(words[0], ("./run", "tenuto"), command)
        done = subprocess.run([TENUTO, *words[1:], *added.split()], cwd=self.folder, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=self.limit)
        self.assertEqual(0, done.returncode, f"{command}:\n{done.stderr}\n{done.stdout[-2000:]}")
        self.assertNotEqual("", done.stdout + done.stderr, command)

    def type_all(self):
        for command in self.table[self._testMethodName]:
            self.type(command)

    def assert_written(self, *names):
        for name in names:
            self.assertLess(0, (self.folder / name).stat().st_size, name)


class Quick(Commands):
    table = QUICK

    @another_case
    def test_schedules(self):
        self.type_all()
        self.assert_written("rounds.svg")

    @another_case
    def test_tuning(self):
        self.type_all()

    @another_case
    def test_plans(self):
        self.type_all()
        self.assert_written("plan.json", "plan.html")

    @another_case
    def test_rehearsals(self):
        train, own, foreign = self.table["test_rehearsals"]
        self.type(train)
        self.type(own)
        self.assert_written("heat.svg")
        # The document's second trace is one of another tool: here it is ours, packed.
        trace = next((self.folder / "runs" / "paced").glob("trace-*.json"))
        with gzip.open(self.folder / "timeline.json.gz", "wb") as packed:
            packed.write(trace.read_bytes())
        self.type(foreign)


class Slow(Commands):
    table = SLOW
    limit = 1500

    @another_case
    @long_case
    def test_quick_start(self):
        self.need_text()
        self.type_all()

    @another_case
    @long_case
    def test_a_measured_plan(self):
        self.need_text()
        self.type_all()

    @another_case
    @long_case
    def test_weeks(self):
        self.type_all()
        self.assert_written("week.svg")

    @another_case
    @long_case
    def test_sync_modes(self):
        self.need_text()
        self.type_all()

    @another_case
    @long_case
    def test_benchmarks(self):
        self.type_all()
        self.assert_written("eight.txt")


if __name__ == "__main__":
    unittest.main()
