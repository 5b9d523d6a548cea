"""Synthetic functions and single-turn requests for them, in the form of the accuracy phase.

A function is VERB_NOUN with one to four parameters of any JSON type. A request names the parameters and their values, so that the
call follows from the request and the declaration alone. Which functions exist is decided by the split, as all names are.
"""

import json
import random
from dataclasses import dataclass

from demo.world import lexicon
from demo.world.names import Names, split_of

CATEGORIES = ("simple", "multiple", "parallel", "parallel_multiple", "irrelevance")
N_FUNCTIONS = {"train": 1200, "validation": 150, "test": 300}
REFUSAL = "None of the functions can do that."


@dataclass(frozen=True)
class Parameter:
    name: str
    schema: dict
    is_required: bool


@dataclass(frozen=True)
class Function:
    verb: str
    noun: str
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        return f"{self.verb}_{self.noun}"

    def tool(self) -> dict:
        properties = {parameter.name: parameter.schema for parameter in self.parameters}
        required = [parameter.name for parameter in self.parameters if parameter.is_required]
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": f"{self.verb.capitalize()} the {self.noun}",
                "parameters": {"type": "object", "properties": properties, "required": required},
            },
        }


def _schema(rng: random.Random, name: str) -> dict:
    text = f"The {name}"
    if name in lexicon.ENUMS:
        return {"type": "string", "description": text, "enum": lexicon.ENUMS[name]}
    if name in lexicon.STRING_PARAMS:
        return {"type": "string", "description": text}
    if name in lexicon.INTEGER_PARAMS:
        return {"type": "integer", "description": text}
    if name in lexicon.NUMBER_PARAMS:
        return {"type": "number", "description": text}
    if name in lexicon.BOOLEAN_PARAMS:
        return {"type": "boolean", "description": text}
    if name in lexicon.ARRAY_PARAMS:
        kind = "integer" if name == "numbers" else "string"
        return {"type": "array", "description": text, "items": {"type": kind}}
    kind = "string" if name == "details" else "integer"
    properties = {key: {"type": kind} for key in lexicon.OBJECT_KEYS[name]}
    return {"type": "object", "description": text, "properties": properties}


def _parameter_name(rng: random.Random) -> str:
    pools = [lexicon.STRING_PARAMS, lexicon.INTEGER_PARAMS, lexicon.NUMBER_PARAMS, lexicon.BOOLEAN_PARAMS, list(lexicon.ENUMS),
             lexicon.ARRAY_PARAMS, lexicon.OBJECT_PARAMS]  # fmt: skip
    return rng.choice(rng.choices(pools, weights=[4, 4, 2, 2, 2, 2, 1])[0])


def catalogue(split: str) -> list[Function]:
    """The functions of a set: a fixed list for a split, whatever the seed of the requests."""
    rng = random.Random(f"functions {split}")
    functions: dict[str, Function] = {}
    while len(functions) < N_FUNCTIONS[split]:
        verb, noun = rng.choice(lexicon.VERBS), rng.choice(lexicon.SECOND)
        if split_of(f"{verb}_{noun}") != split or f"{verb}_{noun}" in functions:
            continue
        names: list[str] = []
        for _ in range(rng.choices([1, 2, 3, 4], weights=[3, 4, 2, 1])[0]):
            name = _parameter_name(rng)
            if name not in names:
                names.append(name)
        parameters = tuple(Parameter(name, _schema(rng, name), i == 0 or rng.random() < 0.7) for i, name in enumerate(names))
        functions[f"{verb}_{noun}"] = Function(verb, noun, parameters)
    return list(functions.values())


def _value(rng: random.Random, names: Names, parameter: Parameter) -> object:
    schema = parameter.schema
    kind = schema["type"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if kind == "string":
        return names.phrase()
    if kind == "integer":
        return rng.randint(1, 99)
    if kind == "number":
        return rng.randint(1, 99) + rng.randint(1, 9) / 10
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        count = rng.randint(1, 3)
        return [rng.randint(1, 99) if schema["items"]["type"] == "integer" else names.phrase() for _ in range(count)]
    return {
        key: rng.randint(1, 99) if inner["type"] == "integer" else names.phrase() for key, inner in schema["properties"].items()
    }


def _said(value: object) -> str:
    """The value as a request says it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " and ".join(str(item) for item in value)
    if isinstance(value, dict):
        return " and ".join(f"{key} {item}" for key, item in value.items())
    return str(value)


def _arguments(rng: random.Random, names: Names, function: Function) -> dict:
    return {
        parameter.name: _value(rng, names, parameter)
        for parameter in function.parameters
        if parameter.is_required or rng.random() < 0.5
    }


def _clause(arguments: dict) -> str:
    return ", ".join(f"{name} {_said(value)}" for name, value in arguments.items())


def _request(rng: random.Random, calls: list[tuple[Function, dict]], style: int) -> str:
    parts: list[str] = []
    for number, (function, arguments) in enumerate(calls):
        if number and function is calls[number - 1][0]:
            parts.append(f"and with {_clause(arguments)}")
            continue
        lead = (f"{function.verb} the {function.noun}", f"{function.verb} a {function.noun}")[style % 2]
        start = ("Please ", "I want to ", "Can you ")[style % 3] if number == 0 else "then "
        parts.append(f"{start}{lead} with {_clause(arguments)}")
    return "; ".join(parts) + ("?" if style % 3 == 2 else ".")


QUESTIONS = (
    "Why is the {noun} {first}?", "Who made the {first} {noun}?", "What do you think about the {noun}?", "Tell me a story about a {noun}.",
    "How old is the {first} {noun}?", "Which {noun} is the best one?", "Where does the {first} {noun} come from?",
)  # fmt: skip


def request(rng: random.Random, tools: list[Function], split: str, category: str) -> dict:
    """A request for the declared `tools`: {"messages", "calls"}; calls are {"name", "arguments"} in order.

    "irrelevance" is a question that no function answers, about a thing that one may be declared for. "multiple" needs no second tool and
    "parallel_multiple" falls back to "parallel" where only one is declared.
    """
    names = Names(rng, split)
    if category == "irrelevance":
        text = rng.choice(QUESTIONS).format(noun=rng.choice(lexicon.SECOND), first=rng.choice(lexicon.FIRST))
        return {"messages": [{"role": "user", "content": text}], "calls": []}
    if category == "parallel" or (category == "parallel_multiple" and len(tools) == 1):
        function = rng.choice(tools)
        calls = [(function, _arguments(rng, names, function)) for _ in range(rng.choice((2, 2, 3)))]
    elif category == "parallel_multiple":
        calls = [(function, _arguments(rng, names, function)) for function in rng.sample(tools, 2)]
    else:
        function = rng.choice(tools)
        calls = [(function, _arguments(rng, names, function))]
    text = _request(rng, calls, rng.randrange(6))
    return {
        "messages": [{"role": "user", "content": text}],
        "calls": [{"name": function.name, "arguments": arguments} for function, arguments in calls],
    }


def reasoning(row: dict) -> str:
    """What is thought before the reply to a request."""
    if not row["calls"]:
        return "No function fits."
    return "I need " + " and ".join(call["name"] for call in row["calls"]) + " ."


def _allowed(value: object) -> list:
    """The values the accuracy phase accepts: a list of one; inside an object again a list for each key."""
    return [{key: [item] for key, item in value.items()}] if isinstance(value, dict) else [value]


def sample(rng: random.Random, functions: list[Function], split: str, category: str, number: int) -> dict:
    """One line of a data set for `espalier bench bfcl`, with the expected calls beside it."""
    n_tools = {"simple": (1, 1), "parallel": (1, 1), "irrelevance": (1, 3)}.get(category, (2, 4))
    tools = rng.sample(functions, rng.randint(*n_tools))
    row = request(rng, tools, split, category)
    truth = [{call["name"]: {name: _allowed(value) for name, value in call["arguments"].items()}} for call in row["calls"]]
    return {
        "sample_id": f"{split}_{category}_{number}",
        "subset": category,
        "messages": row["messages"],
        "tools": [function.tool() for function in tools],
        "ground_truth": truth,
        "calls": row["calls"],
    }


def samples(seed: int, split: str, per_category: int, categories: tuple[str, ...] = CATEGORIES) -> list[dict]:
    rng = random.Random(f"single {split} {seed}")
    functions = catalogue(split)
    return [sample(rng, functions, split, category, number) for category in categories for number in range(per_category)]


def reply_message(row: dict) -> dict:
    """The assistant message that answers the request."""
    if not row["calls"]:
        return {"role": "assistant", "content": REFUSAL}
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}
        for i, call in enumerate(row["calls"])
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}
