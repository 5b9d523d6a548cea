"""The small world: deterministic, its sets share no name, every task is solved by its expert and by nothing less."""
import hashlib
import json
import random
import re

import pytest

from demo.world import conversations, functions, lexicon, names, predictability, tasks
from demo.world.python_programs import Program, ProgramError
from demo.world.shell import Shell

NAME = re.compile(r"\b[a-z]+_[a-z]+\b")


def text_of(split, seed=1, count=40):
    return "".join(json.dumps(row) for episode in conversations.episodes(seed, split, count, (1, 4)) for row in episode.rows())


def test_same_seed_same_bytes_whatever_the_process():
    # A change of the generator changes this hash: then every recorded figure has to be made again.
    text = text_of("train") + json.dumps(functions.samples(1, "train", 5))
    assert text == text_of("train") + json.dumps(functions.samples(1, "train", 5))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == EXPECTED_HASH
    assert text_of("train", seed=2) != text_of("train")


EXPECTED_HASH = "956186c4edc7c865"


def test_sets_share_no_name():
    found = {}
    for split in names.SPLITS:
        pairs = {tuple(name.split("_")) for name in NAME.findall(text_of(split).replace("\\n", " ").replace("test_", ""))}
        found[split] = {"_".join(pair) for pair in pairs if pair[0] in lexicon.FIRST and pair[1] in lexicon.SECOND}
        assert len(found[split]) > 200
        assert {names.split_of(name) for name in found[split]} == {split}
    assert not found["train"] & found["test"]


def test_sets_share_no_function_and_no_string_value():
    catalogues = {split: {function.name for function in functions.catalogue(split)} for split in names.SPLITS}
    assert [len(catalogues[split]) for split in names.SPLITS] == [functions.N_FUNCTIONS[split] for split in names.SPLITS]
    assert not catalogues["train"] & catalogues["test"] and not catalogues["train"] & catalogues["validation"]
    kinds = {p.schema["type"] for function in functions.catalogue("test") for p in function.parameters}
    assert kinds == {"string", "integer", "number", "boolean", "array", "object"}


@pytest.mark.parametrize("kind", list(tasks.KINDS))
def test_expert_reaches_the_goal_with_and_only_with_all_its_commands(kind):
    for number in range(8):
        rng = random.Random(f"{kind} {number}")
        shell = Shell()
        site = tasks.Site(rng, names.Names(rng, "test"), shell)
        site.distractor()
        task = tasks.KINDS[kind](site)
        before = dict(shell.files)
        expert = task.expert()
        step = next(expert)
        statuses = []
        while True:
            results = [shell.run(command) for command in step[1]]
            statuses += [status for status, _ in results]
            try:
                step = expert.send([text for _, text in results])
            except StopIteration:
                break
        assert shell.files != before, "a goal that is already reached decides nothing"
        assert set(statuses[1:]) == {0}, "only the first command of a task may fail (a failing test, a crash)"


def test_episode_rows_are_the_benchmarks():
    for episode in conversations.episodes(3, "test", 20, (1, 3)):
        rows = episode.rows()
        assert [row["turn"] for row in rows] == list(range(1, len(rows) + 1))
        assert list(rows[0]) == ["conversation_id", "turn", "role", "content", "system", "tools"]
        assert [row["role"] for row in rows[1:]] == ["assistant", "tool"] * (len(rows) // 2 - 1) + ["assistant"]
        for assistant, tool in zip(rows[1:-1:2], rows[2::2], strict=True):
            calls = assistant["tool_calls"]
            assert [call["id"] for call in calls] == [result["tool_call_id"] for result in tool["tool_results"]]
            assert all(list(json.loads(call["function"]["arguments"])) == ["command"] for call in calls)
            assert assistant["reasoning_content"]


def test_replaying_the_recorded_commands_reaches_the_goal():
    for episode in conversations.episodes(4, "validation", 20, (1, 4)):
        shell = episode.fresh_shell()
        results = [conversations.tool_text(*shell.run(c)) for turn in episode.turns for c in turn.commands]
        assert shell.files == episode.goal
        assert results[:-1] == [result for turn in episode.turns for result in turn.results]


@pytest.fixture
def shell():
    made = Shell()
    made.write("./src/a.py", 'x = "one"\nprint(x)\n')
    made.write("./docs/b.txt", "first\nsecond\nthird\n")
    return made


@pytest.mark.parametrize(
    ("command", "status", "output"),
    [
        ("ls", 0, "docs\nsrc\n"),
        ("cat ./docs/b.txt", 0, "first\nsecond\nthird\n"),
        ("cat docs/b.txt | head -n 1", 0, "first\n"),
        ("tail -n 1 ./docs/b.txt", 0, "third\n"),
        ("find . -name '*.txt'", 0, "./docs/b.txt\n"),
        ("grep -rn second .", 0, "./docs/b.txt:2:second\n"),
        ("grep -c i ./docs/b.txt", 0, "2\n"),
        ("grep -n nothing ./docs/b.txt", 1, ""),
        ("sed -n 2,3p ./docs/b.txt", 0, "second\nthird\n"),
        ("wc -l ./docs/b.txt", 0, "3 ./docs/b.txt\n"),
        ("python3 ./src/a.py", 0, "one\n"),
        ("sed -i 's/one/two/' ./src/a.py && python3 ./src/a.py", 0, "two\n"),
        ("mkdir -p ./new && mv ./docs/b.txt ./new && ls new", 0, "b.txt\n"),
        ("echo some words > ./c.txt && cat c.txt", 0, "some words\n"),
        ("cat ./missing && ls", 1, "cat: ./missing: No such file or directory\n"),
        ("rm ./docs/b.txt && ls docs", 0, ""),
        ("frobnicate", 127, "sh: frobnicate: command not found\n"),
        ("echo 'open", 2, "sh: unterminated quoted string\n"),
        ("echo a > ./none/c.txt", 1, "sh: ./none/c.txt: No such file or directory\n"),
        ("", 2, "sh: syntax error\n"),
        ("head -n x ./docs/b.txt", 1, "head: invalid number: x\n"),
        ("sed s/a ./docs/b.txt", 1, "sed: unknown command\n"),
        ("cat ./src", 1, "cat: ./src: Is a directory\n"),
    ],
)
def test_shell(shell, command, status, output):
    assert shell.run(command) == (status, output)


def test_shell_survives_any_command_made_of_its_words():
    rng = random.Random(5)
    words = "ls cat head -n 2 grep -rn -c find . -name '*.py' sed -i s/a/b/ 3s/x/y/ > >> | && ; ./src/a.py ./src git log show rm mv cp " \
        "wc -l mkdir -p python3 -m pytest touch tail echo".split()  # fmt: skip
    for _ in range(3000):
        made = Shell()
        made.write("./src/a.py", 'x = "one"\nprint(x)\n')
        status, output = made.run(" ".join(rng.choice(words) for _ in range(rng.randint(1, 7))))
        assert isinstance(status, int) and isinstance(output, str)


def test_program_errors_name_line_and_nearest_name():
    program = Program('good_name = "v"\nprint(god_name)\n')
    with pytest.raises(ProgramError, match="NameError: god_name is not defined. Did you mean: good_name ?") as caught:
        program.run()
    assert caught.value.line == 2


def test_single_turn_samples_are_consistent():
    rows = functions.samples(1, "test", 30)
    for row in rows:
        declared = {tool["function"]["name"]: tool["function"]["parameters"] for tool in row["tools"]}
        n_calls = {"simple": (1, 1), "multiple": (1, 1), "parallel": (2, 3), "parallel_multiple": (2, 2), "irrelevance": (0, 0)}
        low, high = n_calls[row["subset"]]
        assert low <= len(row["calls"]) <= high
        for call in row["calls"]:
            schema = declared[call["name"]]
            assert set(schema["required"]) <= set(call["arguments"]) <= set(schema["properties"])
            for name in call["arguments"]:
                assert re.search(rf"\b{name}\b", row["messages"][0]["content"])


def test_suffix_predictor_by_hand():
    index = predictability.SuffixIndex()
    for token in [1, 2, 3, 4, 1, 2, 3, 5, 9]:
        index.append(token)
    assert index.predict() is None
    shares = predictability.Shares()
    predictability.add_reply(index, [1, 2, 3, 5, 9], shares)
    # 1, 2, 3: no 3-gram before them; 5: both 4 and 5 followed, the newest wins; 9: "2 3 5" was followed by 9.
    assert vars(shares) == {"right": 2, "wrong": 0, "silent": 3}
    assert len(index) == 9 and index.predict() is None


def test_suffix_predictor_prefers_the_longer_match():
    index = predictability.SuffixIndex()
    for token in [7, 1, 2, 3, 4, 8, 1, 2, 3, 5, 7, 1, 2, 3]:
        index.append(token)
    assert index.predict() == 5  # 4 matched four tokens (16), 5 only three but is the newest (9 x 2)
    index.truncate(0)
    for token in [6, 7, 1, 2, 3, 4, 8, 1, 2, 3, 5, 6, 7, 1, 2, 3]:
        index.append(token)
    assert index.predict() == 4  # five tokens (25) beat 18
