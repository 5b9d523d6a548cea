"""The structure lints find what they are there to find, and accept what is right."""
import subprocess
import sys
import textwrap

import pytest

TABLE = """\
| # | folder | one line | may include |
|---|---|---|---|
| 1 | `base/` | ground | - |
| 2 | `text/` | text | 1 |
| 3 | `grammar/` | grammar (comes later) | 1-2 |
| 4 | `app/` | main | all |
"""


@pytest.fixture
def tree(tmp_path):
    """A small source tree that every lint accepts."""
    for folder in ("src/base", "src/text", "src/app", "docs", "scripts", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    write(tmp_path, "docs/ARCHITECTURE.md", TABLE)
    write(tmp_path, "src/CMakeLists.txt", "espalier_folder(base)\nespalier_folder(text DEPS base LIBS x)\n")
    write(tmp_path, "src/base/a.h", "#pragma once\nint a();\n")
    write(tmp_path, "src/text/b.cpp", '#include "base/a.h"\nint b() { return a(); }\n')
    write(tmp_path, "src/app/main.cpp", '#include "text/c.h"\nint main() { return c(); }\n')
    write(tmp_path, "src/text/c.h", "#pragma once\nint c();\n")
    write(tmp_path, "src/README.md", "".join(f"**`{folder}/`** words.\n\n" for folder in ("base", "text", "app")))
    write(tmp_path, "README.md", "Run `./dev test`, read [the map](docs/ARCHITECTURE.md) and `src/base/a.h`.\n")
    write(tmp_path, "CMakePresets.json", '{"configurePresets": [{"name": "release"}]}')
    write(tmp_path, "dev", "case x in\n    test) run ;;\n    build) run ;;\nesac\n")
    return tmp_path


def write(root, name, text):
    (root / name).write_text(textwrap.dedent(text), encoding="utf-8")


def lint(source_dir, script, root):
    done = subprocess.run([sys.executable, source_dir / "scripts" / script, root], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert (done.returncode == 0) == (done.stdout.strip() == "")
    return done.stdout


@pytest.mark.parametrize("script", ["check_layers.py", "check_sizes.py", "check_style.py", "check_docs.py"])
def test_a_right_tree_passes(source_dir, tree, script):
    assert lint(source_dir, script, tree) == "\n"


def long_function(n_lines):
    return "void f() {\n" + "    g();\n" * (n_lines - 2) + "}\n"


DEEP = "void f() {\n" + "if (a) {\n" * 6 + "g();\n" + "}\n" * 7

VIOLATIONS = [
    ("check_layers.py", "src/base/x.cpp", '#include "text/c.h"\n', "base/ may not include text/"),
    ("check_layers.py", "src/text/x_test.cpp", '#include "base/missing.h"\n', "no such file"),
    ("check_layers.py", "src/CMakeLists.txt", "espalier_folder(base DEPS text)\n", "base depends on text"),
    ("check_sizes.py", "src/base/x.cpp", long_function(101), "f: 101 lines, the limit is 100"),
    ("check_sizes.py", "src/base/x.cpp", "int a;\n" * 1001, "1001 lines, the limit is 1000"),
    ("check_sizes.py", "src/base/x.h", "#pragma once\n" + "int a;\n" * 300, "301 lines, the limit is 300"),
    ("check_sizes.py", "src/base/x.cpp", "int f(int a, int b, int c, int d, int e, int f, int g, int h) {\n}\n", "8 parameters"),
    ("check_sizes.py", "src/base/x.cpp", DEEP, "nests 6 blocks, the limit is 5"),
    ("check_sizes.py", "src/base/x.cpp", "class C {\npublic:\n    C(int a) : b_(a) {\n" + "        g();\n" * 100 + "    }\n};\n", "C: 102 lines"),
    ("check_sizes.py", "src/base/x.cpp", "TEST(A, B) {\n" + "    g();\n" * 100 + "}\n", "TEST: 102 lines"),
    ("check_style.py", "src/text/x.cpp", "void f() { throw 1; }\n", "`throw`"),
    ("check_style.py", "src/text/x.cpp", 'auto f() { return std::getenv("A"); }\n', "`getenv` outside src/base/"),
    ("check_style.py", "src/text/x.h", "#pragma once\n#ifdef ESPALIER_CUDA\n#endif\n", "#ifdef CUDA in a header"),
    ("check_style.py", "src/text/x.cpp", 'auto path = "/root/models";\n', "path of one machine"),
    ("check_style.py", "src/text/x.cpp", "// TODO: later\n", "without an issue"),
    ("check_style.py", "src/text/x.h", "int a();\n", "no #pragma once"),
    ("check_docs.py", "docs/x.md", "see [that](missing.md)\n", "link to missing.md"),
    ("check_docs.py", "docs/x.md", "in `src/base/missing.cpp`\n", "src/base/missing.cpp, which does not exist"),
    ("check_docs.py", "docs/x.md", "run `./dev build quick`\n", "preset quick"),
    ("check_docs.py", "docs/x.md", "run `./dev polish`\n", "./dev polish is not a command"),
]


@pytest.mark.parametrize("script,name,text,message", VIOLATIONS, ids=lambda value: value[:24].split("\n")[0])
def test_a_violation_is_found(source_dir, tree, script, name, text, message):
    write(tree, name, text)
    assert message in lint(source_dir, script, tree)


ACCEPTED = [
    ("check_sizes.py", "src/base/x.cpp", long_function(100)),
    ("check_sizes.py", "src/base/x.cpp", "// size-exempt: one table that reads better whole\n" + long_function(101)),
    ("check_sizes.py", "src/base/x.cpp", "int f(std::map<int, int> a, std::function<void(int, int)> b, int c, int d, int e, int f, int g) {\n}\n"),
    ("check_sizes.py", "src/base/x.cpp", 'auto a = "{{{{{{{{";\n// {{{{{{{\nvoid f() { char c = \'{\'; }\n'),
    ("check_style.py", "src/text/x.cpp", '// never throws; a throw or a getenv in words\nauto a = "throw";  // TODO(#12): one day\n'),
    ("check_style.py", "src/base/x.cpp", 'auto f() { return std::getenv("A"); }\n'),
    ("check_docs.py", "docs/x.md", "in `src/grammar/` (comes later)\n"),
    ("check_layers.py", "src/app/x.cpp", '#include "base/a.h"\n#include <vector>\n'),
]


@pytest.mark.parametrize("script,name,text", ACCEPTED, ids=lambda value: value[:24].split("\n")[0])
def test_what_is_right_is_accepted(source_dir, tree, script, name, text):
    write(tree, name, text)
    assert lint(source_dir, script, tree) == "\n"


def test_a_folder_outside_the_table_is_found(source_dir, tree):
    (tree / "src" / "extra").mkdir()
    assert "src/extra/: not in the table" in lint(source_dir, "check_layers.py", tree)
    assert "no paragraph that begins with **`extra/`**" in lint(source_dir, "check_docs.py", tree)


def test_isa_objects_must_not_leak(source_dir, tmp_path):
    """Compiles three small objects: one that keeps to its namespace, one with a weak symbol, one with a foreign global."""
    bodies = {
        "good": "namespace espalier::kernels::avx2 { int f(int a) { return a; } }",
        "weak": "namespace espalier::kernels::avx2 { template <class T> T g(T a) { return a; } int f(int a) { return g(a); } }",
        "foreign": "int f(int a) { return a; }",
    }
    for name, body in bodies.items():
        build = tmp_path / name
        build.mkdir()
        (build / "x.cpp").write_text(body)
        subprocess.run(["g++", "-O0", "-c", build / "x.cpp", "-o", build / "x_avx2.cpp.o"], check=True)
    (tmp_path / "empty").mkdir()

    def messages(name):
        command = [source_dir / "scripts" / "check_isa_objects.sh", tmp_path / name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1)
        return done.stdout

    assert str(tmp_path) not in messages("good")
    assert "weak symbol" in messages("weak")
    assert "outside espalier::kernels::avx2: f(int)" in messages("foreign")
    assert "no object file" in messages("empty")
