#!/usr/bin/env python3
"""Checks that the documentation names what exists.

In README.md, src/README.md and docs/: every relative link, every backticked path under a top-level folder, every preset said to be one
(`--preset NAME`, `./dev build NAME`), every `./dev` command. src/README.md has a paragraph for every folder of src/. A path in a line
that says "(comes later)" may be missing.
"""
import json
import re
import sys
from pathlib import Path

LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"^(?:\./)?((?:src|tests|scripts|docs|cmake|demo|packaging|web|\.ci)/[\w./-]*)$")
PRESET = re.compile(r"(?:--preset|\./dev build) ([a-z][\w-]*)")
COMMAND = re.compile(r"\./dev ([a-z]+)")


def dev_commands(root):
    return set(re.findall(r"^    ([a-z]+)(?: \||\))", (root / "dev").read_text(encoding="utf-8"), re.MULTILINE))


def check_page(page, root, presets, commands):
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        where = f"{page.relative_to(root)}:{number}"
        if "(comes later)" not in line:
            for target in LINK.findall(line):
                if not (page.parent / target).exists():
                    yield f"{where}: link to {target}, which does not exist"
            for code in CODE.findall(line):
                path = PATH.match(code)
                if path and not (root / path.group(1)).exists():
                    yield f"{where}: names {code}, which does not exist"
        for preset in PRESET.findall(line):
            if preset not in presets:
                yield f"{where}: preset {preset} is not in CMakePresets.json"
        for command in COMMAND.findall(line):
            if command not in commands:
                yield f"{where}: ./dev {command} is not a command"


def check(root):
    presets = {preset["name"] for preset in json.loads((root / "CMakePresets.json").read_text())["configurePresets"]}
    commands = dev_commands(root)
    problems = []
    for page in [root / "README.md", root / "src/README.md", *sorted((root / "docs").rglob("*.md"))]:
        problems += check_page(page, root, presets, commands)
    guide = (root / "src/README.md").read_text(encoding="utf-8")
    for folder in sorted(path.name for path in (root / "src").iterdir() if path.is_dir()):
        if not re.search(rf"^\*\*`{folder}/`\*\*", guide, re.MULTILINE):
            problems.append(f"src/README.md: no paragraph that begins with **`{folder}/`**")
    return problems


if __name__ == "__main__":
    found = check(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    print("\n".join(found))
    sys.exit(1 if found else 0)
