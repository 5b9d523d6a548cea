"""The tasks an agent is given in the world, each with the expert that solves it.

A task puts what it needs into the file system, says in one sentence what is wanted, and its expert yields (reasoning, commands) and
is sent the commands' outputs. The expert looks only at outputs, so the next command always follows from the conversation; whether a
run reached the goal is decided by comparing file systems (conversations.py).
"""

import random
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass

from demo.world import lexicon
from demo.world.names import Names
from demo.world.shell import Commit, Shell

Expert = Generator[tuple[str, list[str]], list[str], None]


@dataclass
class Task:
    kind: str
    instruction: str
    expert: Callable[[], Expert]


class Site:
    """Where the tasks of one conversation put their files."""

    def __init__(self, rng: random.Random, names: Names, shell: Shell):
        self.rng = rng
        self.names = names
        self.shell = shell
        self.folders = [f"./{name}" for name in rng.sample(lexicon.DIRECTORIES, rng.randint(2, 4))]

    def path(self, suffix: str) -> str:
        return f"{self.rng.choice(self.folders)}/{self.names.draw()}{suffix}"

    def text_file(self, path: str, n_lines: int) -> None:
        self.shell.write(path, "".join(f"{self.names.phrase()}\n" for _ in range(n_lines)))

    def distractor(self) -> None:
        kind = self.rng.choice([".txt", ".cfg", ".py"])
        path = self.path(kind)
        if kind == ".txt":
            self.text_file(path, self.rng.randint(1, 4))
        elif kind == ".cfg":
            self.shell.write(path, "".join(f"{self.names.draw()} = {self.names.draw()}\n" for _ in range(self.rng.randint(1, 3))))
        else:
            self.shell.write(path, function_text(self.names.draw(), self.names.draw()))


def function_text(name: str, value: str) -> str:
    return f'def {name}():\n    return "{value}"\n'


def base_name(path: str) -> str:
    return path.rsplit("/", 1)[1]


def first_line(text: str) -> str:
    return text.split("\n", 1)[0]


def config_value(site: Site) -> Task:
    key, value = site.names.draw(), site.names.draw()
    rows = [(key, value)] + [(site.names.draw(), site.names.draw()) for _ in range(site.rng.randint(0, 2))]
    site.rng.shuffle(rows)
    site.shell.write(site.path(".cfg"), "".join(f"{left} = {right}\n" for left, right in rows))

    def expert() -> Expert:
        output = yield f"I need to find where {key} is set.", [f"grep -rn {key} ."]
        found = first_line(output[0]).split(" = ")[1]
        yield f"The value is {found} .", [f"echo {found} >> ./answer.txt"]

    return Task("config_value", f"Write the value of {key} to ./answer.txt .", expert)


def config_change(site: Site) -> Task:
    key, old, new = (site.names.draw() for _ in range(3))
    site.shell.write(site.path(".cfg"), f"{site.names.draw()} = {site.names.draw()}\n{key} = {old}\n")

    def expert() -> Expert:
        output = yield f"I need to find where {key} is set.", [f"grep -rn {key} ."]
        path, _, rest = first_line(output[0]).split(":", 2)
        before = rest.split(" = ")[1]
        yield f"It is {before} now and must become {new} .", [f"sed -i 's/{before}/{new}/' {path}"]
        yield "Check the change.", [f"cat {path}"]

    return Task("config_change", f"Set {key} to {new} .", expert)


def save_head(site: Site) -> Task:
    path, target = site.path(".txt"), site.names.draw()
    site.text_file(path, site.rng.randint(3, 5))
    count = site.rng.randint(1, 3)

    def expert() -> Expert:
        output = yield f"Find the file {base_name(path)} first.", [f"find . -name {base_name(path)}"]
        found = first_line(output[0])
        yield f"It is {found} .", [f"head -n {count} {found} > ./{target}.txt"]

    return Task("save_head", f"Save the first {count} lines of {base_name(path)} in ./{target}.txt .", expert)


def count_lines(site: Site) -> Task:
    path = site.path(".txt")
    site.text_file(path, site.rng.randint(1, 9))

    def expert() -> Expert:
        output = yield f"Find the file {base_name(path)} first.", [f"find . -name {base_name(path)}"]
        output = yield "Count its lines.", [f"wc -l {first_line(output[0])}"]
        count = output[0].split(" ")[0]
        yield f"It has {count} lines.", [f"echo {count} >> ./answer.txt"]

    return Task("count_lines", f"Count the lines of {base_name(path)} and write the number to ./answer.txt .", expert)


def count_matches(site: Site) -> Task:
    path, name = site.path(".txt"), site.names.draw()
    lines = [name.replace("_", " ")] * site.rng.randint(1, 4) + [site.names.phrase() for _ in range(site.rng.randint(1, 3))]
    site.rng.shuffle(lines)
    site.shell.write(path, "".join(line + "\n" for line in lines))
    word = name.split("_")[1]

    def expert() -> Expert:
        output = yield f"Find the file {base_name(path)} first.", [f"find . -name {base_name(path)}"]
        output = yield f"Count the lines with {word} .", [f"grep -c {word} {first_line(output[0])}"]
        count = first_line(output[0])
        yield f"There are {count} .", [f"echo {count} >> ./answer.txt"]

    return Task("count_matches", f"How many lines of {base_name(path)} contain {word} ? Write it to ./answer.txt .", expert)


def fix_test(site: Site) -> Task:
    path, name, old, new = site.path(".py"), site.names.draw(), site.names.draw(), site.names.draw()
    other = function_text(site.names.draw(), site.names.draw())
    parts = [function_text(name, old), other]
    site.rng.shuffle(parts)
    site.shell.write(path, "\n".join(parts))
    module = path[2:-3].replace("/", ".")
    test = f"./tests/test_{name}.py"
    site.shell.write(test, f'from {module} import {name}\n\ndef test_{name}():\n    assert {name}() == "{new}"\n')

    def expert() -> Expert:
        output = yield "Run the test first.", [f"python3 -m pytest {test}"]
        match = re.search(r"expected (\w+) but got (\w+)", output[0])
        if match is None:
            return
        wanted, got = match[1], match[2]
        output = yield f"It must be {wanted} but is {got} . Find it.", [f"grep -rn {got} ."]
        found = first_line(output[0]).split(":")[0]
        yield f"Change it in {found} .", [f"sed -i 's/{got}/{wanted}/' {found}"]
        yield "Run the test again.", [f"python3 -m pytest {test}"]

    return Task("fix_test", f"The test {test} fails. Fix the code.", expert)


def fix_traceback(site: Site) -> Task:
    path, good = site.path(".py"), site.names.draw()
    bad = site.names.draw()
    site.shell.write(path, f'{good} = "{site.names.draw()}"\nprint({bad})\n')

    def expert() -> Expert:
        output = yield "Run the script first.", [f"python3 {path}"]
        match = re.search(r"File (\S+) , line \d+\nNameError: (\w+) is not defined. Did you mean: (\w+)", output[0])
        if match is None:
            return
        yield f"The name {match[2]} must be {match[3]} .", [f"sed -i 's/{match[2]}/{match[3]}/' {match[1]}"]
        yield "Run it again.", [f"python3 {path}"]

    return Task("fix_traceback", f"The script {path} crashes. Fix it.", expert)


def rename_function(site: Site) -> Task:
    path, old, new = site.path(".py"), site.names.draw(), site.names.draw()
    site.shell.write(path, function_text(old, site.names.draw()) + f"\nprint({old}())\n")

    def expert() -> Expert:
        output = yield f"Find where {old} is defined.", [f"grep -rn 'def {old}' ."]
        found = first_line(output[0]).split(":")[0]
        yield f"It is in {found} .", [f"sed -i 's/{old}/{new}/' {found}"]
        yield "Check the file.", [f"cat {found}"]
        yield "Run it.", [f"python3 {found}"]

    return Task("rename_function", f"Rename the function {old} to {new} .", expert)


def move_file(site: Site) -> Task:
    path = site.path(".txt")
    site.text_file(path, site.rng.randint(1, 3))
    target = f"./{site.names.draw()}"

    def expert() -> Expert:
        output = yield f"Find the file {base_name(path)} first.", [f"find . -name {base_name(path)}"]
        found = first_line(output[0])
        yield f"Make the folder {target} and move it.", [f"mkdir -p {target} && mv {found} {target}"]
        yield "Check the folder.", [f"ls {target}"]

    return Task("move_file", f"Move {base_name(path)} into the folder {target} .", expert)


def create_file(site: Site) -> Task:
    path, text = f"{site.rng.choice(site.folders)}/{site.names.draw()}.txt", site.names.phrase()

    def expert() -> Expert:
        folder = path.rsplit("/", 1)[0]
        yield "Make the folder and write the file.", [f"mkdir -p {folder} && echo {text} > {path}"]
        yield "Check the file.", [f"cat {path}"]

    return Task("create_file", f"Create {path} with the text {text} .", expert)


def remove_files(site: Site) -> Task:
    for _ in range(site.rng.randint(1, 3)):
        site.shell.write(site.path(".tmp"), "\n")

    def expert() -> Expert:
        output = yield "List them first.", ["find . -name '*.tmp'"]
        yield "Remove them.", ["rm " + " ".join(output[0].split())]
        yield "Check that none is left.", ["find . -name '*.tmp'"]

    return Task("remove_files", "Remove all .tmp files.", expert)


def undo_commit(site: Site) -> Task:
    path, key, before, after = site.path(".cfg"), *(site.names.draw() for _ in range(3))
    site.shell.write(path, f"{key} = {after}\n")
    tag = str(site.rng.randint(100, 999))
    commit = Commit(tag, f"{site.rng.choice(lexicon.ACTIONS)} {key}", path, f"{key} = {before}", f"{key} = {after}")
    site.shell.commits.insert(0, commit)

    def expert() -> Expert:
        output = yield f"See which commit changed {path} .", [f"git log --oneline {path}"]
        output = yield "Show the commit.", [f"git show {output[0].split(' ')[0]}"]
        match = re.search(r"- (\w+) = (\w+)\n\+ \w+ = (\w+)", output[0])
        if match is None:
            return
        yield f"Put {match[2]} back.", [f"sed -i 's/{match[3]}/{match[2]}/' {path}"]

    return Task("undo_commit", f"Undo what the last commit changed in {path} .", expert)


KINDS: dict[str, Callable[[Site], Task]] = {
    maker.__name__: maker
    for maker in (
        config_value, config_change, save_head, count_lines, count_matches, fix_test, fix_traceback, rename_function, move_file,
        create_file, remove_files, undo_commit,
    )
}
