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
    "learner": (r"learners?", "joiner", r'"learners\\?"'),
    "belief": (r"beliefs?", "call fingerprint", None),
    "bury": (r"bury|buries|buried", "declare dead", None),
    "errand": (r"errands?", "recovery message", None),
    "nominal": (r"nominal(ly)?", "virtual clock", r'"nominal\\?"'),
}
PLACES = ("src/", "tests/", "bench/", "docs/", "README.md", "CONTRIBUTING.md")
READ = (".h", ".cc", ".py", ".md")
# The test that breaks the rule on purpose.
EXEMPT = ("tests/house/tidy_test.py",)
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
WORD = {word: re.compile(rf"({forms})$", re.IGNORECASE) for word, (forms, _, _) in RETIRED.items()}


def retired_words(tree):
    """Uses of retired words."""
    for path in tree.paths(*PLACES, ends=READ):
        if path in EXEMPT:
            continue
        for number, line in enumerate(tree.lines(path), 1):
            for part in PARTS.findall(line):
                for word, (_, better, stays) in RETIRED.items():
                    if not WORD[word].match(part) or (stays and re.search(stays, line)):
                        continue
                    yield path, number, f"{part}: write {better}"
