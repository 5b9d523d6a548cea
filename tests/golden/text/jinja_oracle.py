#!/usr/bin/env python3
"""Recomputes a file of template cases with jinja2 in Hugging Face's environment and reports differences.

    python jinja_oracle.py jinja-extra.jsonl          compare
    python jinja_oracle.py jinja-extra.jsonl --write  replace the expected side

Needs jinja2 3.1.6. The environment is the one that transformers 5.24 builds (sandbox, trim_blocks, lstrip_blocks, loop controls,
its tojson, raise_exception, the generation tag). The first line may hold {"context": ...}, the context of cases without their own.
"""
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Raised(jinja2.exceptions.TemplateError):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    return made


def outcome(template, context):
    kinds = ((Raised, "raise_exception"), (jinja2.exceptions.UndefinedError, "undefined"), (jinja2.exceptions.TemplateSyntaxError, "syntax"))
    try:
        return {"output": environment().from_string(template).render(**context)}
    except Exception as error:  # the kind is what is recorded
        kind = next((name for cls, name in kinds if isinstance(error, cls)), type(error).__name__)
        return {"error": str(error), "error_kind": kind}


def main():
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    shared, n_different = {}, 0
    for row in rows:
        if "template" not in row:
            shared = row["context"]
            continue
        found = outcome(row["template"], json.loads(json.dumps(row.get("context", shared))))
        for key in ("output", "error_kind", "error"):
            if (key in row or key != "error") and row.get(key) != found.get(key):
                n_different += 1
                print("DIFFERS", row["id"], key, repr(row.get(key)), repr(found.get(key)))
                row[key] = found.get(key)
    print(f"{len(rows)} lines, {n_different} differences")
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({k: v for k, v in row.items() if v is not None}, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    main()
