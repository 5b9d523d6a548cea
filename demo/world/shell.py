"""A simulated shell: a small file system in memory and the programs an agent calls on it, whose outputs are computed.

A command is split at `&&`, `;` and `|` as a POSIX shell does for plain words and quotes; no expansion, no control flow. What it does
not know answers "command not found" with status 127, so that a wrong command of a model fails as it would in a real shell.
"""

import fnmatch
import re
import shlex
from dataclasses import dataclass, field

from demo.world.python_programs import Program, ProgramError


class ShellError(Exception):
    def __init__(self, text: str, status: int = 1):
        super().__init__(text)
        self.status = status


@dataclass
class Commit:
    tag: str
    message: str
    path: str
    before: str
    after: str


@dataclass
class Shell:
    """files: path -> text, paths as "./src/a.py"; folders: the known folders, "." among them."""

    files: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {"."})
    commits: list[Commit] = field(default_factory=list)

    def write(self, path: str, text: str) -> None:
        path = normal(path)
        parent = path.rsplit("/", 1)[0]
        while parent != ".":
            self.folders.add(parent)
            parent = parent.rsplit("/", 1)[0]
        self.files[path] = text

    def run(self, command: str) -> tuple[int, str]:
        """Exit status and output (standard output and error together)."""
        output: list[str] = []
        status = 0
        try:
            for pipeline in _pipelines(command):
                status, text = self._pipeline(pipeline)
                output.append(text)
                if status != 0:
                    break
        except ShellError as error:
            return error.status, "".join(output) + str(error) + "\n"
        return status, "".join(output)

    def _pipeline(self, stages: list[list[str]]) -> tuple[int, str]:
        text = ""
        status = 0
        for words in stages:
            words, target, append = _redirection(words)
            if not words:
                raise ShellError("sh: syntax error", 2)
            program = PROGRAMS.get(words[0])
            if program is None:
                raise ShellError(f"sh: {words[0]}: command not found", 127)
            status, text = program(self, words[1:], text)
            if target:
                path = normal(target)
                self._need_parent(path)
                self.files[path] = (self.files.get(path, "") if append else "") + text
                text = ""
        return status, text

    def read(self, program: str, path: str) -> str:
        path = normal(path)
        if path in self.folders:
            raise ShellError(f"{program}: {path}: Is a directory")
        if path not in self.files:
            raise ShellError(f"{program}: {path}: No such file or directory")
        return self.files[path]

    def under(self, folder: str) -> list[str]:
        folder = normal(folder)
        if folder in self.files:
            return [folder]
        if folder not in self.folders:
            raise ShellError(f"{folder}: No such file or directory")
        return sorted(path for path in self.files if path.startswith(folder + "/"))

    def _need_parent(self, path: str) -> None:
        parent = path.rsplit("/", 1)[0]
        if parent not in self.folders:
            raise ShellError(f"sh: {path}: No such file or directory")


def normal(path: str) -> str:
    path = path.rstrip("/") or "."
    if path == "." or path.startswith("./"):
        return path
    return "./" + path


def _pipelines(command: str) -> list[list[list[str]]]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise ShellError("sh: unterminated quoted string", 2) from error
    result: list[list[list[str]]] = [[[]]]
    for word in words:
        if word in ("&&", ";"):
            result.append([[]])
        elif word == "|":
            result[-1].append([])
        elif set(word) <= set("|&;<>") and word not in (">", ">>"):
            raise ShellError("sh: syntax error", 2)
        else:
            result[-1][-1].append(word)
    return result


def _redirection(words: list[str]) -> tuple[list[str], str, bool]:
    for index, word in enumerate(words):
        if word in (">", ">>"):
            if index + 2 != len(words):
                raise ShellError("sh: syntax error", 2)
            return words[:index], words[index + 1], word == ">>"
    return words, "", False


def _number(program: str, text: str) -> int:
    if not text.isdigit():
        raise ShellError(f"{program}: invalid number: {text}")
    return int(text)


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _options(words: list[str]) -> tuple[list[str], list[str]]:
    return [word for word in words if word.startswith("-")], [word for word in words if not word.startswith("-")]


def _echo(_shell: Shell, words: list[str], _text: str) -> tuple[int, str]:
    return 0, " ".join(words) + "\n"


def _cat(shell: Shell, words: list[str], text: str) -> tuple[int, str]:
    return 0, "".join(shell.read("cat", path) for path in words) if words else text


def _head_or_tail(program: str):
    def run(shell: Shell, words: list[str], text: str) -> tuple[int, str]:
        count = 10
        if len(words) >= 2 and words[0] == "-n":
            count = _number(program, words[1])
            words = words[2:]
        lines = _lines(shell.read(program, words[0]) if words else text)
        return 0, "".join(lines[:count] if program == "head" else lines[max(0, len(lines) - count) :])

    return run


def _ls(shell: Shell, words: list[str], _text: str) -> tuple[int, str]:
    _, paths = _options(words)
    folder = normal(paths[0]) if paths else "."
    if folder in shell.files:
        return 0, folder + "\n"
    if folder not in shell.folders:
        raise ShellError(f"ls: {folder}: No such file or directory", 2)
    depth = folder.count("/") + 1
    names = {path.split("/")[depth] for path in [*shell.files, *shell.folders] if path.startswith(folder + "/")}
    return 0, "".join(name + "\n" for name in sorted(names))


def _find(shell: Shell, words: list[str], _text: str) -> tuple[int, str]:
    folder = words[0] if words and not words[0].startswith("-") else "."
    pattern = "*"
    for index, word in enumerate(words):
        if word == "-name" and index + 1 < len(words):
            pattern = words[index + 1]
    found = [path for path in shell.under(folder) if fnmatch.fnmatchcase(path.rsplit("/", 1)[1], pattern)]
    return 0, "".join(path + "\n" for path in found)


def _grep(shell: Shell, words: list[str], text: str) -> tuple[int, str]:
    options, rest = _options(words)
    flags = "".join(option[1:] for option in options)
    if not rest:
        raise ShellError("usage: grep [-rnc] pattern [file]", 2)
    needle, paths = rest[0], rest[1:]
    if "r" in flags:
        sources = [(path, shell.files[path]) for folder in paths or ["."] for path in shell.under(folder)]
    elif paths:
        sources = [(normal(path), shell.read("grep", path)) for path in paths]
    else:
        sources = [("", text)]
    hits = [(path, row, line) for path, body in sources for row, line in enumerate(_lines(body), 1) if needle in line]
    status = 0 if hits else 1
    if "c" in flags:
        return status, f"{len(hits)}\n"
    if "l" in flags:
        return status, "".join(dict.fromkeys(path + "\n" for path, _, _ in hits))
    named = "r" in flags or len(sources) > 1
    rows = [(f"{path}:" if named else "") + (f"{row}:" if "n" in flags else "") + line.rstrip("\n") for path, row, line in hits]
    return status, "".join(row + "\n" for row in rows)


def _sed(shell: Shell, words: list[str], text: str) -> tuple[int, str]:
    if len(words) >= 2 and words[0] == "-n":
        match = re.fullmatch(r"(\d+)(?:,(\d+))?p", words[1])
        if match is None:
            raise ShellError("sed: unknown command")
        first, last = int(match[1]), int(match[2] or match[1])
        return 0, "".join(_lines(shell.read("sed", words[2]) if len(words) > 2 else text)[first - 1 : last])
    in_place = bool(words) and words[0] == "-i"
    if in_place:
        words = words[1:]
    match = re.fullmatch(r"(\d*)s/([^/]+)/([^/]*)/g?", words[0]) if words else None
    if match is None or len(words) != 2:
        raise ShellError("sed: unknown command")
    lines = _lines(shell.read("sed", words[1]))
    wanted = int(match[1]) if match[1] else None
    changed = [line.replace(match[2], match[3]) if wanted in (None, row) else line for row, line in enumerate(lines, 1)]
    if not in_place:
        return 0, "".join(changed)
    shell.files[normal(words[1])] = "".join(changed)
    return 0, ""


def _wc(shell: Shell, words: list[str], text: str) -> tuple[int, str]:
    options, paths = _options(words)
    if options and options != ["-l"]:
        raise ShellError(f"wc: invalid option {options[0]}")
    if not paths:
        return 0, f"{len(_lines(text))}\n"
    return 0, "".join(f"{len(_lines(shell.read('wc', path)))} {path}\n" for path in paths)


def _mkdir(shell: Shell, words: list[str], _text: str) -> tuple[int, str]:
    options, paths = _options(words)
    for path in paths:
        path = normal(path)
        if path in shell.files or (path in shell.folders and "-p" not in options):
            raise ShellError(f"mkdir: {path}: File exists")
        while path != ".":
            shell.folders.add(path)
            path = path.rsplit("/", 1)[0]
    return 0, ""


def _move_or_copy(program: str):
    def run(shell: Shell, words: list[str], _text: str) -> tuple[int, str]:
        _, paths = _options(words)
        if len(paths) != 2:
            raise ShellError(f"{program}: missing file operand")
        source, target = normal(paths[0]), normal(paths[1])
        body = shell.read(program, source)
        if target in shell.folders:
            target = target + "/" + source.rsplit("/", 1)[1]
        elif paths[1].endswith("/") or target.rsplit("/", 1)[0] not in shell.folders:
            raise ShellError(f"{program}: {paths[1]}: No such file or directory")
        if program == "mv":
            del shell.files[source]
        shell.files[target] = body
        return 0, ""

    return run


def _rm(shell: Shell, words: list[str], _text: str) -> tuple[int, str]:
    _, paths = _options(words)
    if not paths:
        raise ShellError("rm: missing operand")
    for path in paths:
        shell.read("rm", path)
        del shell.files[normal(path)]
    return 0, ""


def _touch(shell: Shell, words: list[str], _text: str) -> tuple[int, str]:
    for path in words:
        shell._need_parent(normal(path))
        shell.files.setdefault(normal(path), "")
    return 0, ""


def _python(shell: Shell, words: list[str], _text: str) -> tuple[int, str]:
    if words[:2] == ["-m", "pytest"]:
        return _pytest(shell, words[2:], "")
    if not words:
        raise ShellError("python3: missing file")
    source = shell.read("python3", words[0])
    output: list[str] = []
    try:
        program = Program(source, shell.files)
        output = program.output
        program.run()
    except ProgramError as error:
        head = f"Traceback (most recent call last):\n  File {normal(words[0])} , line {error.line}\n"
        return 1, "".join(line + "\n" for line in output) + head + error.text + "\n"
    return 0, "".join(line + "\n" for line in output)


def _pytest(shell: Shell, words: list[str], _text: str) -> tuple[int, str]:
    """Runs functions test_* of the files tests/test_*.py, each one `assert f() == "value"`."""
    _, paths = _options(words)
    tests = [path for path in shell.under(paths[0] if paths else ".") if path.rsplit("/", 1)[1].startswith("test_")]
    failures: list[str] = []
    passed = 0
    for path in tests:
        text = shell.files[path]
        program = Program("\n".join(line for line in text.splitlines() if line.startswith("from ")), shell.files)
        try:
            program.run()
            for match in re.finditer(r'def (test_\w+)\(\):\n    assert (\w+)\(\) == "(\w+)"', text):
                got = program.call(match[2])
                if got == match[3]:
                    passed += 1
                else:
                    failures.append(f"FAILED {path} {match[1]} : expected {match[3]} but got {got}\n")
        except ProgramError as error:
            failures.append(f"ERROR {path} : {error.text}\n")
    if failures:
        return 1, "".join(failures) + f"{len(failures)} failed, {passed} passed\n"
    return 0, f"{passed} passed\n"


def _git(shell: Shell, words: list[str], _text: str) -> tuple[int, str]:
    if words[:1] == ["log"]:
        paths = [normal(word) for word in words[1:] if word.startswith("./") or "/" in word]
        commits = [commit for commit in shell.commits if not paths or commit.path in paths]
        return 0, "".join(f"{commit.tag} {commit.message}\n" for commit in commits)
    if words[:1] == ["show"] and len(words) == 2:
        for commit in shell.commits:
            if commit.tag == words[1]:
                return 0, f"commit {commit.tag}\n{commit.message}\n{commit.path}\n- {commit.before}\n+ {commit.after}\n"
        raise ShellError(f"fatal: {words[1]}: unknown revision", 128)
    raise ShellError("git: unknown command")


PROGRAMS = {
    "echo": _echo,
    "cat": _cat,
    "head": _head_or_tail("head"),
    "tail": _head_or_tail("tail"),
    "ls": _ls,
    "find": _find,
    "grep": _grep,
    "sed": _sed,
    "wc": _wc,
    "mkdir": _mkdir,
    "mv": _move_or_copy("mv"),
    "cp": _move_or_copy("cp"),
    "rm": _rm,
    "touch": _touch,
    "python3": _python,
    "pytest": _pytest,
    "git": _git,
}
