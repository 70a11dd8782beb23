"""C++ as tokens, and the declarations of a file: what the checks of tools/tidy.py read."""

import re

TOKEN = re.compile(
    r"""(?P<space>\s+)
      |(?P<comment>//[^\n]*|/\*.*?\*/)
      |(?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\s\\]*)\(.*?\)(?P=mark)")
      |(?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
      |(?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
      |(?P<letter>'(?:\\.|[^'\\\n])+')
      |(?P<word>[A-Za-z_]\w*)
      |(?P<sign>::|->|\[\[|\]\]|.)""",
    re.VERBOSE | re.DOTALL,
)


def without_directives(text):
    """The text with preprocessor lines blanked, line numbers kept."""
    out, inside = [], False
    for line in text.split("\n"):
        directive = inside or line.lstrip().startswith("#")
        inside = directive and line.endswith("\\")
        out.append("" if directive else line)
    return "\n".join(out)


def tokens_of(text):
    """(word, line) of everything but space, comments and directives."""
    line, found = 1, []
    for match in TOKEN.finditer(without_directives(text)):
        if match.lastgroup not in ("space", "comment"):
            found.append((match.group(), line))
        line += match.group().count("\n")
    return found


class Declaration:
    """One statement of a namespace or a class, with its body if it has one."""

    def __init__(self, words, first, last, scope, body=False):
        self.words, self.first, self.last, self.scope = words, first, last, scope
        self.body = body
        self.bare = strip_prefixes(words)

    def is_type(self):
        return bool(self.bare) and self.bare[0] in ("class", "struct", "union", "enum")

    def result_type(self):
        """What a function returns, as its words."""
        return self.bare[: self.name_index() - 1] if self.is_function() else None

    def is_function(self):
        return not self.is_type() and self.name_index() > 0

    def name_index(self):
        """Index of the '(' that opens the parameters; 0 when there is none."""
        depth = 0
        for i, word in enumerate(self.bare):
            before = self.bare[i - 1] if i > 0 else ""
            if word == "=" and depth == 0 and before != "operator":
                return 0
            if word == "(" and depth == 0 and i > 0:
                if before not in ("requires", "decltype", "noexcept", "alignas", "explicit"):
                    pointer = self.bare[i + 1 : i + 2] == ["*"]
                    return 0 if pointer else i
            if before != "operator":
                depth += {"(": 1, ")": -1, "<": 1, ">": -1}.get(word, 0)
        return 0

    def name(self):
        if self.is_function():
            return self.bare[self.name_index() - 1]
        bare = self.bare
        while "[[" in bare:
            bare = bare[: bare.index("[[")] + bare[bare.index("]]") + 1 :]
        names = [w for w in bare if re.match(r"[A-Za-z_]\w*$", w)]
        if "=" in self.bare and "using" not in self.bare[:1]:
            return self.bare[self.bare.index("=") - 1]
        skip = ("class", "struct", "union", "enum", "using", "inline", "constexpr", "final")
        names = [n for n in names if n not in skip]
        return names[0] if names else "?"


def strip_prefixes(words):
    """Without template<...>, requires(...) and attributes in front."""
    i = 0
    while i < len(words):
        if words[i] == "template":
            i = past(words, i + 1, "<", ">")
        elif words[i] == "requires":
            i = past(words, i + 1, "(", ")")
        elif words[i] == "[[":
            i = words.index("]]", i) + 1
        else:
            break
    return words[i:]


def past(words, i, opening, closing):
    """The index after the bracket that opens at i."""
    depth = 0
    while i < len(words):
        depth += {opening: 1, closing: -1}.get(words[i], 0)
        i += 1
        if depth == 0:
            return i
    return i


class Scanner:
    """Reads namespaces and classes; leaves function bodies aside."""

    def __init__(self, text):
        self.tokens = tokens_of(text)
        self.at = 0
        self.found = []

    def read(self):
        self.scope([], None)
        return self.found

    def matching(self, at):
        """The index of the brace that closes the one at `at`."""
        depth = 0
        for i in range(at, len(self.tokens)):
            depth += {"{": 1, "}": -1}.get(self.tokens[i][0], 0)
            if depth == 0:
                return i
        return len(self.tokens) - 1

    def scope(self, names, access):
        """Declarations up to the closing brace; access None = namespace."""
        while self.at < len(self.tokens) and self.tokens[self.at][0] != "}":
            word = self.tokens[self.at][0]
            following = self.tokens[self.at + 1][0] if self.at + 1 < len(self.tokens) else ""
            if access is not None and word in ("public", "private", "protected"):
                if following == ":":
                    access, self.at = word, self.at + 2
                    continue
            if word == ";":
                self.at += 1
                continue
            self.statement(names, access)
        self.at += 1

    def statement(self, names, access):
        start, depth, words, body = self.at, 0, [], False
        while self.at < len(self.tokens):
            word = self.tokens[self.at][0]
            depth += {"(": 1, "[": 1, "[[": 1, ")": -1, "]": -1, "]]": -1}.get(word, 0)
            if word == "{" and depth == 0 and self.brace(start, words, names, access):
                return
            if word == "{":
                self.at = self.matching(self.at) + 1
                body = True
                continue
            if word == "}" and depth <= 0:
                return
            self.at += 1
            if word == ";" and depth == 0:
                break
            words.append(word)
        self.add(words, start, names, access, body)

    def brace(self, start, words, names, access):
        """A '{' at the end of `words`. True when it ended the statement."""
        here = Declaration(words, 0, 0, None)
        if "namespace" in words[:2] or words[:1] == ["extern"]:
            self.at += 1
            name = words[-1] if words[-1] not in ("namespace", "inline") else "(anonymous)"
            self.scope(names + [name], None)
            return True
        if here.is_type() and here.bare[0] != "enum":
            self.add(words, start, names, access, True)
            self.at += 1
            public = here.bare[0] != "class"
            hidden = access in ("private", "protected")
            self.scope(names + [here.name()] + (["(hidden)"] if hidden else []),
                       "public" if public else "private")
            return True
        if not here.is_function():
            return False
        end = self.matching(self.at)
        following = self.tokens[end + 1][0] if end + 1 < len(self.tokens) else ""
        # A member initialised by braces, X() : a_{1}, b_{2} {}: the body is still to come. The '{'
        # of a body follows ')' or a qualifier, the one of an initialiser follows a name.
        qualifiers = (")", "const", "override", "noexcept", "final", "try", "}", "]]", "&", "&&")
        if words[-1] not in qualifiers and ":" in words and following in (",", "{"):
            return False
        self.at = end + 1
        self.add(words, start, names, access, True)
        return True

    def add(self, words, start, names, access, body):
        if words:
            last = self.tokens[min(self.at, len(self.tokens)) - 1][1]
            first = self.tokens[start][1]
            self.found.append(Declaration(words, first, last, (tuple(names), access), body))
