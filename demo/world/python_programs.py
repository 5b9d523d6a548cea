"""Runs the small Python programs of the world: constants, functions that return, calls, print. Nothing is executed by Python itself."""

import ast
import difflib


class ProgramError(Exception):
    """An error of the simulated program; the text is what the interpreter would print last."""

    def __init__(self, line: int, text: str):
        super().__init__(text)
        self.line = line
        self.text = text


class Program:
    def __init__(self, source: str, files: dict[str, str] | None = None):
        self._files = files or {}
        self._values: dict[str, object] = {}
        self.output: list[str] = []
        try:
            self._tree = ast.parse(source)
        except SyntaxError as error:
            raise ProgramError(error.lineno or 1, "SyntaxError: invalid syntax") from error

    def run(self) -> None:
        for node in self._tree.body:
            self._statement(node)

    def call(self, name: str) -> object:
        return self._call(name, 1)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef):
            self._values[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self._values[node.targets[0].id] = self._value(node.value)
        elif isinstance(node, ast.Expr):
            self._value(node.value)
        elif isinstance(node, ast.ImportFrom):
            self._import(node)
        else:
            raise ProgramError(node.lineno, "SyntaxError: invalid syntax")

    def _import(self, node: ast.ImportFrom) -> None:
        path = "./" + (node.module or "").replace(".", "/") + ".py"
        if path not in self._files:
            raise ProgramError(node.lineno, f"ModuleNotFoundError: No module named '{node.module}'")
        module = Program(self._files[path], self._files)
        module.run()
        for alias in node.names:
            if alias.name not in module._values:
                raise ProgramError(node.lineno, f"ImportError: cannot import name '{alias.name}'")
            self._values[alias.name] = module._values[alias.name]

    def _value(self, node: ast.expr) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._lookup(node.id, node.lineno)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "print":
                self.output.append(" ".join(str(self._value(argument)) for argument in node.args))
                return None
            return self._call(node.func.id, node.lineno)
        raise ProgramError(node.lineno, "SyntaxError: invalid syntax")

    def _lookup(self, name: str, line: int) -> object:
        if name in self._values:
            return self._values[name]
        near = difflib.get_close_matches(name, self._values, n=1, cutoff=0.0)
        hint = f" Did you mean: {near[0]} ?" if near else ""
        raise ProgramError(line, f"NameError: {name} is not defined.{hint}")

    def _call(self, name: str, line: int) -> object:
        function = self._lookup(name, line)
        if not isinstance(function, ast.FunctionDef):
            raise ProgramError(line, f"TypeError: {name} is not callable")
        for node in function.body:
            if isinstance(node, ast.Return) and node.value is not None:
                return self._value(node.value)
            self._statement(node)
        return None
