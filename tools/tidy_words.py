"""Words that the project does not use any more, and what it says instead; part of tools/tidy.py.

The check reads identifiers (divided at _ and at capitals), comments and documents.
"""

import re

# For each word: the forms that are refused, what to write instead, and uses that are allowed.
RETIRED = {
    "room": (r"rooms?", "memory limit, buffer, space, allocate", r'"room\\?"|"\.room[."]'),
    "settle": (r"settle[sdr]?|settling", "finish, make final, grant: what it does", None),
    "lesson": (r"lessons?", "state transfer", None),
    "newcomer": (r"newcomers?", "joiner", None),
    "learner": (r"learners?", "joiner", r'"learners"'),
    "belief": (r"beliefs?", "call fingerprint", None),
    "bury": (r"bury|buries|buried", "declare dead", None),
    "errand": (r"errands?", "recovery message", None),
    "nominal": (r"nominal(ly)?", "virtual clock", r'"nominal\\?"'),
}
# Folders that still use some of these words; a folder without hits must leave the table.
UNCONVERTED = {
    "src/adapt",
    "src/collective",
    "src/communicator",
    "src/runtime",
    "tests/adapt",
    "tests/control",
    "tests/ir",
    "tests/runtime",
    "tests/sim",
    "tests/worker",
}
PLACES = ("src/", "tests/", "bench/", "docs/", "README.md", "CONTRIBUTING.md")
READ = (".h", ".cc", ".py", ".md")
TABLE = "tools/tidy_words.py"
# The test that breaks the rule on purpose.
EXEMPT = ("tests/house/tidy_test.py",)
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
WORD = {word: re.compile(rf"({forms})$", re.IGNORECASE) for word, (forms, _, _) in RETIRED.items()}


def folder_of(path):
    return "/".join(path.split("/")[:2]) if path.count("/") > 1 else path.split("/")[0]


def retired_words(tree):
    """Uses of retired words outside UNCONVERTED, and folders that need not be in it."""
    unconverted = set()
    for path in tree.paths(*PLACES, ends=READ):
        if path in EXEMPT:
            continue
        for number, line in enumerate(tree.lines(path), 1):
            for part in PARTS.findall(line):
                for word, (_, better, stays) in RETIRED.items():
                    if not WORD[word].match(part) or (stays and re.search(stays, line)):
                        continue
                    if folder_of(path) in UNCONVERTED:
                        unconverted.add(folder_of(path))
                    else:
                        yield path, number, f"{part}: write {better}"
    if TABLE in tree.text:
        for folder in sorted(UNCONVERTED - unconverted):
            yield TABLE, 1, f"{folder} has no retired word any more: remove it from UNCONVERTED"
