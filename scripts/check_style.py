#!/usr/bin/env python3
"""Checks the rules of docs/STYLE.md that one regular expression can see.

- no `throw` in C++ (foreign exceptions are caught, own failures are Result values)
- no `getenv` outside src/base/ (configuration enters at main and is passed down)
- no #ifdef on CUDA in headers (a boundary looks the same in every build)
- no absolute path of somebody's machine in code, scripts or docs
- a TODO names its issue: TODO(#123)
- every header has #pragma once
"""
import re
import subprocess
import sys
from pathlib import Path

CPP = {".h", ".cpp", ".cu", ".inc"}
TEXT = CPP | {".py", ".sh", ".md", ".txt", ".cmake", ".json", ".toml", ""}
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:work|root|home|Users|tmp/(?:build|bash))(?:/|\b)")
UNOWNED_TODO = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\(#\d+\))")
# Test data: other people's text and bytes.
DATA = ("tests/golden/", "tests/fuzz/corpus/", "demo/data/")
# Files that must spell what they look for.
EXEMPT = {"scripts/check_style.py", "docs/STYLE.md", "tests/scripts/test_lints.py"}


def code_only(text):
    return COMMENT_OR_STRING.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def line_of(text, match):
    return text.count("\n", 0, match.start()) + 1


def rules_for(path, name, text):
    """Yields (pattern, text to search, message)."""
    if path.suffix in CPP:
        code = code_only(text)
        yield re.compile(r"\bthrow\b"), code, "`throw`: return a Result instead"
        if not name.startswith("src/base/"):
            yield re.compile(r"\b(?:secure_)?getenv\b"), code, "`getenv` outside src/base/: use base/environment.h"
    if path.suffix == ".h":
        yield re.compile(r"#\s*if(?:n?def)?\b.*CUDA"), text, "#ifdef CUDA in a header"
    if not name.startswith("tests/") or path.suffix in {".py", ".cpp", ".sh"}:
        yield MACHINE_PATH, text, "path of one machine"
        yield UNOWNED_TODO, text, "unfinished mark without an issue, write TODO(#123)"


def check_file(path, name):
    text = path.read_text(encoding="utf-8")
    for pattern, searched, message in rules_for(path, name, text):
        for match in pattern.finditer(searched):
            yield f"{name}:{line_of(searched, match)}: {message}"
    if path.suffix == ".h" and "#pragma once" not in text:
        yield f"{name}: no #pragma once"


def listed_files(root):
    """Tracked and new files; everything under root where git is not in use."""
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        return sorted(set(listing.stdout.split("\n")) - {""})
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def check(root):
    problems = []
    for name in listed_files(root):
        path = root / name
        is_ours = name not in EXEMPT and (not name.startswith(DATA) or path.suffix in CPP | {".py", ".md"})
        if path.suffix in TEXT and is_ours and path.is_file() and path.name != "LICENSE":
            problems += check_file(path, name)
    return problems


if __name__ == "__main__":
    found = check(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    print("\n".join(found))
    sys.exit(1 if found else 0)
