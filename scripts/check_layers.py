#!/usr/bin/env python3
"""Checks that src/ keeps the folder table of docs/ARCHITECTURE.md.

Reads the table (| # | folder | one line | may include |, with ranges such as 1-4) and every quoted #include. Fails on an include of a
folder that is not named, of a file that does not exist, on a folder of src/ that the table lacks, on a table folder that is
neither there nor marked as coming later, and on library dependencies in src/CMakeLists.txt that the table does not allow.
"""
import re
import sys
from pathlib import Path

ROW = re.compile(r"^\|\s*(\d+)\s*\|\s*`(\w+)/`\s*\|(.*)\|\s*([^|]*?)\s*\|$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
SUFFIXES = {".h", ".cpp", ".inc", ".cu"}


def read_table(markdown):
    """Returns {folder: set of folders it may include} and the set of folders that come later."""
    rows = [match.groups() for match in map(ROW.match, markdown.splitlines()) if match]
    name_of = {int(number): folder for number, folder, _, _ in rows}
    allowed = {}
    for number, folder, _, spec in rows:
        numbers = set(range(1, int(number))) if spec == "all" else set()
        for part in re.findall(r"\d+(?:-\d+)?", spec):
            first, _, last = part.partition("-")
            numbers |= set(range(int(first), int(last or first) + 1))
        unknown = numbers - name_of.keys()
        if unknown:
            raise SystemExit(f"docs/ARCHITECTURE.md: folder {folder} may include numbers that no row has: {sorted(unknown)}")
        allowed[folder] = {name_of[n] for n in numbers} | {folder}
    later = {folder for _, folder, line, _ in rows if "(comes later)" in line}
    return allowed, later


def check_file(path, source_root, allowed):
    folder = path.relative_to(source_root).parts[0]
    for target in INCLUDE.findall(path.read_text(encoding="utf-8")):
        where = f"{path.relative_to(source_root.parent)}: \"{target}\""
        if not (source_root / target).is_file():
            yield f"{where}: no such file under src/ (includes are written from there)"
        elif (target_folder := target.split("/")[0]) not in allowed[folder]:
            yield f"{where}: {folder}/ may not include {target_folder}/, only {', '.join(sorted(allowed[folder] - {folder})) or 'nothing'}"


def check_libraries(cmake_text, allowed):
    for name, rest in re.findall(r"espalier_folder\((\w+)([^)]*)\)", cmake_text):
        dependencies = re.search(r"DEPS([a-z_\s]+)", rest)
        for dependency in dependencies.group(1).split() if dependencies else []:
            if dependency not in allowed.get(name, set()):
                yield f"src/CMakeLists.txt: library {name} depends on {dependency}, which its row does not name"


def check(root):
    allowed, later = read_table((root / "docs/ARCHITECTURE.md").read_text(encoding="utf-8"))
    if not allowed:
        return ["docs/ARCHITECTURE.md: no folder table found"]
    source_root = root / "src"
    present = {path.name for path in source_root.iterdir() if path.is_dir()}
    problems = [f"src/{folder}/: not in the table of docs/ARCHITECTURE.md" for folder in sorted(present - allowed.keys())]
    problems += [f"docs/ARCHITECTURE.md: src/{folder}/ does not exist" for folder in sorted(allowed.keys() - present - later)]
    for path in sorted(source_root.rglob("*")):
        if path.suffix in SUFFIXES and path.relative_to(source_root).parts[0] in allowed:
            problems += check_file(path, source_root, allowed)
    problems += check_libraries((source_root / "CMakeLists.txt").read_text(encoding="utf-8"), allowed)
    return problems


if __name__ == "__main__":
    found = check(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    print("\n".join(found))
    sys.exit(1 if found else 0)
