#!/usr/bin/env python3
"""Checks the size limits of docs/STYLE.md: function, file, header, parameter list, nesting.

A brace-matching scanner, not a parser: comments, literals and preprocessor lines are blanked, then every brace is classified by the
text before it. That is enough for this code base, where functions are formatted by clang-format. `size-exempt: reason` in a
comment on the line of a function's opening brace or just above it exempts that function; in the first 30 lines of a file, with
`size-exempt-file: reason`, the whole file.
"""
import re
import sys
from bisect import bisect_left
from pathlib import Path

FUNCTION_LINES_MAX = 100
KERNEL_LINES_MAX = 150  # bodies of CUDA kernels
FILE_LINES_MAX = 1000
HEADER_LINES_MAX = 300
PARAMETERS_MAX = 7
NESTING_MAX = 5

BLANK = re.compile(
    r'R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'(?![0-9A-Fa-f])'
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)
CONTROL = re.compile(r"\b(if|for|while|switch|catch)\s*(constexpr)?\s*\($|\b(else|do|try)\s*$")
NOT_FUNCTION = re.compile(r"\b(namespace|class|struct|union|enum)\b")
QUALIFIER = re.compile(r"\s*(->\s*[\w:<>,&*\s]+|\bconst|\bnoexcept(\([^()]*\))?|\boverride|\bfinal|\bmutable|&&?|\[\[\w+\]\])\s*$")
NAME = re.compile(r"([~\w:]+(?:<[^<>]*>)?|operator\s*\S+)\s*$")


def blank(text):
    """Comments, literals and directives become spaces; lines and columns stay."""
    digits = re.sub(r"(?<=[0-9A-Fa-f])'(?=[0-9A-Fa-f])", " ", text)
    return BLANK.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), digits)


def opening_parenthesis(code, end):
    """Index of the '(' that matches the ')' at `end`."""
    depth = 0
    for i in range(end, -1, -1):
        depth += (code[i] == ")") - (code[i] == "(")
        if depth == 0:
            return i
    return -1


def count_parameters(inside):
    if not inside.strip() or inside.strip() == "void":
        return 0
    count, depth = 1, 0
    for character in re.sub(r"->|>=|<=|<<|>>(?=[^>]*=)", "", inside):
        depth += character in "(<[{"
        depth -= character in ")>]}"
        count += character == "," and depth == 0
    return count


def classify(code, statement_begin, brace):
    """What the '{' at `brace` opens: ('function', name, parameters), ('control',), ('other',)."""
    # Blanked comments leave long runs of spaces, on which the patterns below would be quadratic.
    head = "\n".join(" ".join(line.split()) for line in code[statement_begin:brace].split("\n") if line.strip())
    tail = head.rstrip()
    while (shorter := QUALIFIER.sub("", tail)) != tail:
        tail = shorter
    if CONTROL.search(head.rstrip()):
        return ("control",)
    if not tail.endswith(")"):
        return ("other",)
    begin = opening_parenthesis(head, len(tail) - 1)
    before = head[:begin].rstrip() if begin >= 0 else ""
    if CONTROL.search(before + "("):
        return ("control",)
    if before.endswith("]"):
        return ("other",)  # a lambda: part of the function around it
    initialisers = re.search(r"\)\s*(?:noexcept\s*)?:(?!:)", head)
    if initialisers:  # a constructor: the parameter list is the one before the first ':'
        end = initialisers.start()
        begin = opening_parenthesis(head, end)
        before, tail = head[:begin].rstrip(), head[:end + 1]
    name = NAME.search(before)
    if not name or NOT_FUNCTION.search(before.split("\n")[-1]):
        return ("other",)
    return ("function", name.group(1), count_parameters(tail[begin + 1:-1]))


def functions(code):
    """Yields (name, parameters, first line, last line, deepest nesting) of every function body."""
    stack = []
    statement_begin = 0
    parentheses = 0
    line_ends = [match.start() for match in re.finditer("\n", code)]
    for match in re.finditer(r"[(){};]", code):
        i, character = match.start(), match.group()
        if character in "()":
            parentheses += 1 if character == "(" else -1
        elif character == ";" and parentheses == 0:
            statement_begin = i + 1
        elif character == "{":
            inside = next((entry for entry in reversed(stack) if entry["kind"] == "function"), None)
            kind = classify(code, statement_begin, i)
            entry = {"kind": kind[0], "saved": parentheses, "line": bisect_left(line_ends, i) + 1}
            if kind[0] == "function" and inside is None:
                entry.update(name=kind[1], parameters=kind[2], depth=0, deepest=0)
            elif kind[0] == "function":
                entry["kind"] = "other"  # a local braced call such as Type(x){...}
            if kind[0] == "control" and inside is not None:
                inside["depth"] += 1
                inside["deepest"] = max(inside["deepest"], inside["depth"])
            stack.append(entry)
            parentheses = 0
            statement_begin = i + 1
        elif character == "}" and stack:
            entry = stack.pop()
            parentheses = entry["saved"]
            if parentheses == 0:
                statement_begin = i + 1
            if entry["kind"] == "control":
                inside = next((other for other in reversed(stack) if other["kind"] == "function"), None)
                if inside is not None:
                    inside["depth"] -= 1
            if entry["kind"] == "function":
                yield entry["name"], entry["parameters"], entry["line"], bisect_left(line_ends, i) + 1, entry["deepest"]


def is_exempt(lines, line):
    return any(re.search(r"size-exempt: \S+", text) for text in lines[max(0, line - 4):line])


def check_file(path, name):
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    if any(re.search(r"size-exempt-file: \S+", line) for line in lines[:30]):
        return
    n_lines = len(lines) - 1
    limit = HEADER_LINES_MAX if path.suffix == ".h" else FILE_LINES_MAX
    if n_lines > limit:
        yield f"{name}: {n_lines} lines, the limit is {limit}"
    if path.suffix == ".py":
        return
    for function, n_parameters, first, last, nesting in functions(blank(text)):
        if is_exempt(lines, first):
            continue
        limit = KERNEL_LINES_MAX if path.suffix == ".cu" else FUNCTION_LINES_MAX
        where = f"{name}:{first}: {function}"
        if last - first + 1 > limit:
            yield f"{where}: {last - first + 1} lines, the limit is {limit}"
        if n_parameters > PARAMETERS_MAX:
            yield f"{where}: {n_parameters} parameters, the limit is {PARAMETERS_MAX}"
        if nesting > NESTING_MAX:
            yield f"{where}: nests {nesting} blocks, the limit is {NESTING_MAX}"


def check(root):
    problems = []
    for folder in ("src", "tests", "scripts", "demo"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".cu", ".inc", ".py"} and path.is_file():
                problems += check_file(path, path.relative_to(root))
    return problems


if __name__ == "__main__":
    found = check(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    print("\n".join(found))
    sys.exit(1 if found else 0)
