"""Each check of tools/tidy.py finds the fault made for it, and none in a clean tree."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import tidy  # noqa: E402
import tidy_limits  # noqa: E402
import tidy_words  # noqa: E402

CLEAN = {
    "README.md": "# A tree\n\nSee [the tour](docs/tour.md#the-walk).\n",
    "docs/tour.md": "# Tour\n\n## The walk\n\n```\n# no title: code\n```\n",
    "examples/small.toml": "[job]\nsteps = 1\n",
    "tests/CMakeLists.txt": "foreach(folder ir)\nendforeach()\n",
    "tests/ir/CMakeLists.txt": "tenuto_test(ir_test SOURCES op_test.cc LINKS ir)\n",
    "tests/ir/op_test.cc": '#include "ir/op.h"\nTEST(Op, Is) { EXPECT_TRUE(true); }\n',
    "src/base/CMakeLists.txt": "tenuto_library(base SOURCES id.cc)\n",
    "src/base/id.cc": '#include "base/id.h"\n',
    "src/base/id.h": (
        "// Names.\n#pragma once\nnamespace tenuto {\n// A name.\nstruct Id {\n  int value = -1;\n"
        "  auto operator<=>(const Id&) const = default;\n};\n"
        "// How many.\ninline constexpr int kCount = 1;\n}  // namespace tenuto\n"
    ),
    "src/ir/CMakeLists.txt": "tenuto_library(ir\n  SOURCES op.cc\n  LINKS base)\n",
    "src/ir/op.cc": (
        '#include "ir/op.h"\nnamespace tenuto {\nint Op::next() const { return 1; }\n}\n'
    ),
    "src/ir/op.h": (
        '// Ops.\n#pragma once\n#include "base/id.h"\nnamespace tenuto {\n'
        "// One op.\nclass [[nodiscard]] Op {\n public:\n"
        "  explicit Op(Id id) : id_{id} {}\n  // The next one.\n  int next() const;\n\n"
        " private:\n  int hidden() const;\n  Id id_;\n};\n"
        "// Two ways to print.\nint print(int);\nint print(char);\n}  // namespace tenuto\n"
    ),
}


def faults_of(files, checks=None):
    """What tidy says of a tree made of `files`, as (check, path, line, sentence)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        tree = tidy.Tree(root)
        return [(name, *fault) for name in checks or tidy.CHECKS for fault in
                tidy.CHECKS[name](tree)]


class Tidy(unittest.TestCase):
    def expect(self, check, path, part, changes):
        """`changes` to the clean tree give exactly this one fault; returns its line."""
        found = faults_of({**CLEAN, **changes})
        self.assertEqual([(check, path)], [(f[0], f[1]) for f in found], found)
        self.assertIn(part, found[0][3])
        return found[0][2]

    def test_clean(self):
        self.assertEqual([], faults_of(CLEAN))

    def test_every_check_is_run_by_the_build(self):
        with open(os.path.join(ROOT, "tests/house/CMakeLists.txt"), encoding="utf-8") as file:
            listed = re.search(r"foreach\(check ([^)]*)\)", file.read()).group(1)
        self.assertEqual(list(tidy.CHECKS), listed.split())

    def test_direction_of_includes(self):
        text = '#include "base/id.h"\n#include "ir/op.h"\n'
        self.assertEqual(2, self.expect("direction", "src/base/id.cc", "base may not see ir",
                                        {"src/base/id.cc": text}))

    def test_includes_are_whole(self):
        self.expect("direction", "src/base/id.cc", "not written whole",
                    {"src/base/id.cc": '#include "base/id.h"\n#include "id.h"\n'})

    def test_direction_of_links(self):
        self.expect("direction", "src/base/CMakeLists.txt", "may not link ir",
                    {"src/base/CMakeLists.txt": "tenuto_library(base SOURCES id.cc LINKS ir)\n"})

    def test_torch_stays_on_its_island(self):
        self.expect("torch", "src/ir/op.cc", "torch/torch.h",
                    {"src/ir/op.cc": '#include "ir/op.h"\n#include <torch/torch.h>\n'})

    def test_long_line(self):
        self.expect("size", "src/base/id.cc", "columns",
                    {"src/base/id.cc": '#include "base/id.h"\n// ' + "x" * 98 + "\n"})

    def test_long_function(self):
        body = "int f(int a) {\n" + "  ++a;\n" * 69 + "}\n"
        text = '#include "base/id.h"\nnamespace {\n' + body + "}\n"
        self.assertEqual(3, self.expect("size", "src/base/id.cc", "function f has 71 lines",
                                        {"src/base/id.cc": text}))
        just = text.replace("  ++a;\n", "", 1)
        self.assertEqual([], faults_of({**CLEAN, "src/base/id.cc": just}))

    def test_long_constructor_and_python(self):
        body = "Op::Op() : a_{1}, b_(2) {\n" + "  f();\n" * 70 + "}\n"
        self.expect("size", "src/ir/op.cc", "function Op",
                    {"src/ir/op.cc": '#include "ir/op.h"\n' + body})
        self.expect("size", "tools/t.py", "function g",
                    {"tools/t.py": "def g():\n" + "    print()\n" * 70})

    def test_long_file_and_example(self):
        self.expect("lengths", "docs/tour.md", "lines",
                    {"docs/tour.md": "# T\n\n## The walk\n" + "\n" * 798})
        self.expect("size", "examples/small.toml", "example", {"examples/small.toml": "\n" * 100})

    def test_source_not_built(self):
        self.expect("built", "src/ir/more.cc", "not built", {"src/ir/more.cc": "\n"})
        commented = "tenuto_library(base\n  # SOURCES id.cc\n)\n"
        self.expect("built", "src/base/id.cc", "not built", {"src/base/CMakeLists.txt": commented})

    def test_test_not_built_or_visited(self):
        self.expect("built", "tests/ir/new_test.cc", "not built", {"tests/ir/new_test.cc": "\n"})
        self.expect("built", "tests/sim/CMakeLists.txt", "does not visit sim",
                    {"tests/sim/CMakeLists.txt": "\n"})

    def test_header_included_nowhere(self):
        self.expect("built", "src/ir/lost.h", "included nowhere", {"src/ir/lost.h": "// Lost.\n"})

    def test_documented(self):
        for gone, name in (("  // The next one.\n", "next"), ("// One op.\n", "Op"),
                           ("// Two ways to print.\n", "print")):
            text = CLEAN["src/ir/op.h"].replace(gone, "")
            found = faults_of({**CLEAN, "src/ir/op.h": text})
            self.assertEqual({("documented", "src/ir/op.h")}, {f[:2] for f in found})
            self.assertIn(f"{name} has no comment", found[0][3])

    def test_documented_groups(self):
        group = "// Both ways.\nvoid send(int);\nvoid recv(int);\n"
        changes = {"src/ir/op.cc": '#include "ir/more.h"\n#include "ir/op.h"\n'}
        for text, faults in ((group, 0), (group + "bool closed();\n", 1),
                             (group.replace("// Both ways.\n", ""), 2),
                             (group.replace("\nvoid recv", "\n\nvoid recv"), 1)):
            changes["src/ir/more.h"] = f"// More.\n#pragma once\n\n{text}"
            self.assertEqual(faults, len(faults_of({**CLEAN, **changes})), text)

    def test_documented_kinds(self):
        for text in ("using Name = int;", "enum class Kind { A, B };",
                     "inline constexpr int k = 1;",
                     "template <class T>\nT twice(T t) {\n  return t;\n}",
                     "struct S {\n};",
                     "template <class T>\nrequires(sizeof(T) > 1) int size(T t);",
                     'inline std::string raw() { return R"(})"; }'):  # a brace in a string
            header = f"// More.\n#pragma once\n\n{text}\n"
            changes = {"src/ir/more.h": header,
                       "src/ir/op.cc": '#include "ir/more.h"\n#include "ir/op.h"\n'}
            self.assertEqual(4, self.expect("documented", "src/ir/more.h", "no comment", changes))
            changes["src/ir/more.h"] = header.replace(text, f"// Said.\n{text}")
            self.assertEqual([], faults_of({**CLEAN, **changes}))

    def test_reminder_and_throw(self):
        self.expect("words", "src/base/id.cc", "reminder",
                    {"src/base/id.cc": '#include "base/id.h"\n// TO' + "DO later\n"})
        self.assertEqual(3, self.expect(
            "words", "src/base/id.cc", "throws",
            {"src/base/id.cc": '#include "base/id.h"\n// never throw\nvoid f() { throw 1; }\n'}))

    def test_retired_words(self):
        forms = {"room": "room", "settle": "settles", "lesson": "lessons", "newcomer": "newcomer",
                 "learner": "Learners", "belief": "beliefs", "bury": "buried", "errand": "errand",
                 "nominal": "nominally"}
        self.assertEqual(set(tidy_words.RETIRED), set(forms))
        for form in forms.values():
            for text in (f"// It has {form}.", f"int {form}_left;", f"int has{form.title()}Left;",
                         f"int k{form.title()} = 1;"):
                line = self.expect("words", "src/base/id.cc", "write ",
                                   {"src/base/id.cc": f'#include "base/id.h"\n{text}\n'})
                self.assertEqual(2, line)
            self.expect("words", "docs/more.md", "write ", {"docs/more.md": f"# A\n\n{form}\n"})

    def test_words_that_stay(self):
        for text in ("A mushroom, roomy.", 'clock = "nominal"', "unsettled", "buryat"):
            self.assertEqual([], faults_of({**CLEAN, "docs/more.md": f"# A\n\n{text}\n"}))

    def expect_limit(self, check, changes, name, part):
        """`changes` break the limit once; an exception allows it, and is refused without need."""
        path = name.split(" ")[0]
        self.expect(check, path, part, changes)
        table = {tidy_limits.TABLE: ""}
        with mock.patch.dict(tidy_limits.EXCEPTIONS, {check: {name}}):
            self.assertEqual([], faults_of({**CLEAN, **changes, **table}, [check]))
            self.assertIn("remove it", faults_of({**CLEAN, **table}, [check])[0][3])

    def test_lengths(self):
        self.expect_limit("lengths", {"docs/tour.md": "# T\n\n## The walk\n" + "\n" * 598},
                          "docs/tour.md", "601 lines: 600 at most")
        with mock.patch.object(tidy_limits, "SHORTER", {"src/base/id.cc": 3}):
            self.expect_limit("lengths", {"src/base/id.cc": '#include "base/id.h"\n\n\n\n'},
                              "src/base/id.cc", "4 lines: 3 at most")

    def test_parameters(self):
        text = ('#include "base/id.h"\n'
                "int f(A<int, int> a = {1, 2}, int b, int c, int d, int e, int g")
        self.assertEqual([], faults_of({**CLEAN, "src/base/id.cc": text + ") {}\n"}))
        self.expect_limit("parameters", {"src/base/id.cc": text + ", int h) {}\n"},
                          "src/base/id.cc f", "7 parameters: 6 at most")

    def test_faces(self):
        lines = "".join(f"  // Does it.\n  virtual int f{i}() = 0;\n" for i in range(11))
        text = f'#include "base/id.h"\nnamespace {{\nclass Face {{\n public:\n{lines}}};\n}}\n'
        self.expect_limit("faces", {"src/base/id.cc": text}, "src/base/id.cc Face",
                          "11 virtual functions: 10 at most")
        concrete = {"src/base/id.cc": text.replace(" = 0", "")}
        self.assertEqual([], faults_of({**CLEAN, **concrete}))

    def test_inputs(self):
        fields = "  int a = 0, b = 1;\n  std::function<void(int, int)> c;\n  int d, e, f, g;\n"
        text = f"{CLEAN['src/base/id.h']}// In.\nstruct StepInput {{\n{fields}  int h;\nEND}};\n"
        allowed = {**CLEAN, "src/base/id.h": text.replace("END", "")}
        self.assertEqual([], faults_of(allowed, ["inputs"]))
        self.expect_limit("inputs", {"src/base/id.h": text.replace("END", "  int i;\n")},
                          "src/base/id.h StepInput", "9 fields: 8 at most")

    def test_documents(self):
        self.expect("documents", "README.md", "no docs/gone.md",
                    {"README.md": "# A\n\n[x](docs/gone.md)\n"})
        self.expect("documents", "README.md", "no such title",
                    {"README.md": "# A\n\n[x](docs/tour.md#the-run)\n"})
        self.expect("documents", "docs/more.md", "2 titles", {"docs/more.md": "# A\n\n# B\n"})

    def test_names(self):
        self.expect("names", "docs/more.md", "src/base/gone.h: there is no such file",
                    {"docs/more.md": "# A\n\n`src/base/gone.h` and `src/NAME.cc`\n"})
        self.expect("names", "docs/more.md", "gone_name: no code has this name",
                    {"docs/more.md": "# A\n\n`gone_name(3)`\n"})
        self.expect("names", "docs/more.md", "GoneName: no code has this name",
                    {"docs/more.md": "# A\n\n`GoneName`\n"})

    def test_command_line(self):
        program = [sys.executable, os.path.join(ROOT, "tools", "tidy.py")]
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "docs"))
            with open(os.path.join(root, "docs", "bad.md"), "w", encoding="utf-8") as file:
                file.write("no title\n")
            bad = subprocess.run(program + [root], capture_output=True, text=True, timeout=60)
            self.assertEqual((1, 1), (bad.returncode, bad.stdout.count("\n")))
            good = subprocess.run(program + [root, "--only", "size"], timeout=60)
            self.assertEqual(0, good.returncode)
            wrong = subprocess.run(program + ["--only", "nothing"], stderr=subprocess.DEVNULL,
                                   timeout=60)
            self.assertEqual(2, wrong.returncode)


if __name__ == "__main__":
    unittest.main()
