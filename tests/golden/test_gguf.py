"""GGUF files made from the reference checkpoints: the same logits as the Hugging Face folder, and one line about a damaged file."""
import json
import shutil
import subprocess

import numpy as np
import pytest
from gguf_writer import BOOL, STRING, convert, tokenizer_metadata, values_of_q8_0, write_file, write_split
from reference import kl_mean

CHECKPOINTS = ["tiny_a", "tiny_b"]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits_are_those_of_the_folder_bit_for_bit(name, reference, evaluate, tmp_path):
    checkpoint, _ = reference(name)
    ids = reference.tokens(name, "len65")
    want = evaluate.logits(checkpoint, ids).tobytes()
    metadata, tensors = convert(checkpoint, "BF16")
    write_file(tmp_path / "model.gguf", metadata, tensors)
    assert evaluate.logits(tmp_path / "model.gguf", ids).tobytes() == want
    parts = write_split(tmp_path / "model", metadata, tensors, 3)
    for part in (parts[0], parts[2]):
        assert evaluate.logits(part, ids).tobytes() == want, part


def test_float_weights_and_the_mtp_layer(reference, evaluate, tmp_path):
    checkpoint, _ = reference("tiny_b")
    ids = reference.tokens("tiny_b", "len65")
    write_file(tmp_path / "model.gguf", *convert(checkpoint, "F32"))
    assert np.abs(evaluate.logits(tmp_path / "model.gguf", ids) - evaluate.logits(checkpoint, ids)).max() < 1e-4
    prompt = reference.tokens("tiny_b", "mtp_prompt")
    drafts = []
    for source in (checkpoint, tmp_path / "model.gguf"):
        evaluate("mtp", source, prompt, "--steps", 8, "--out", tmp_path / "mtp.npy")
        drafts.append(np.load(tmp_path / "mtp.draft.npy"))
    assert np.abs(drafts[0] - drafts[1]).max() < 1e-4


@pytest.mark.parametrize("acts", ["a32", "a8", "ckpt"])
def test_nvfp4_is_read_as_it_is(acts, reference, evaluate, tmp_path):
    checkpoint, _ = reference("tiny_b-nvfp4")
    ids = reference.tokens("tiny_b-nvfp4", "len65")
    options = ("--acts", acts, "--kv-type", "bf16")
    write_file(tmp_path / "model.gguf", *convert(checkpoint))
    assert evaluate.logits(tmp_path / "model.gguf", ids, *options).tobytes() == evaluate.logits(checkpoint, ids, *options).tobytes()


# Largest KL divergence from the BF16 model, least agreement of the best token: random weights suffer more than trained ones (tiny_a
# is the more chaotic of the two). Measured: Q8_0 8e-3 (tiny_a) and under 2e-3 (tiny_b), Q4_0 1.0 and under 0.5.
@pytest.mark.parametrize(("kind", "kl_max", "agree_min"), [("F16", 1e-5, 1.0), ("Q8_0", 2e-2, 0.85), ("Q4_0", 2.0, 0.15)])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_quantised_types_stay_close(name, kind, kl_max, agree_min, reference, evaluate, tmp_path):
    checkpoint, _ = reference(name)
    ids = reference.tokens(name, "len65")
    want = evaluate.logits(checkpoint, ids)
    write_file(tmp_path / "model.gguf", *convert(checkpoint, kind))
    got = evaluate.logits(tmp_path / "model.gguf", ids)
    assert np.isfinite(got).all()
    assert kl_mean(want, got) <= kl_max
    assert (want.argmax(-1) == got.argmax(-1)).mean() >= agree_min


# What the expansion to BF16 itself costs: the same blocks, their values exact in F32. Measured 5e-4 (tiny_a) and 6e-5 (tiny_b).
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_expansion_costs_little(name, reference, evaluate, tmp_path):
    checkpoint, _ = reference(name)
    ids = reference.tokens(name, "len65")
    metadata, tensors = convert(checkpoint, "Q8_0")
    write_file(tmp_path / "model.gguf", metadata, tensors)
    exact = [(tensor, "F32", shape, values_of_q8_0(body).tobytes()) if kind == "Q8_0" else (tensor, kind, shape, body)
             for tensor, kind, shape, body in tensors]
    write_file(tmp_path / "exact.gguf", metadata, exact)
    want = evaluate.logits(tmp_path / "exact.gguf", ids)
    assert kl_mean(want, evaluate.logits(tmp_path / "model.gguf", ids)) <= 1e-3


def run(program, *line):
    return subprocess.run([str(part) for part in (program, *line)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def with_tokenizer(espalier_bin, source_dir, tmp_path_factory):
    """A small random model with tokenizer and chat template, as a folder and as a GGUF file."""
    root = tmp_path_factory.mktemp("gguf")
    folder = root / "model"
    text = source_dir / "tests" / "golden" / "text"
    done = run(espalier_bin, "eval", "make-model", "--out", folder, "--shape", "tiny", "--format", "bf16", "--tokenizer",
               text / "tokenizer" / "tiny" / "tokenizer.json")
    assert done.returncode == 0, done.stderr
    shutil.copy(source_dir / "demo" / "model" / "chat_template.jinja", folder)
    metadata, tensors = convert(folder)
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    metadata += tokenizer_metadata(folder, vocab)
    write_file(root / "model.gguf", metadata, tensors)
    return folder, root / "model.gguf", metadata, tensors


def test_tokens_templates_and_replies_are_those_of_the_folder(with_tokenizer, espalier_bin):
    folder, file, _, _ = with_tokenizer
    text = json.dumps({"id": "1", "text": "<|im_start|>user\nSum 12 and 345: naïve <think>x</think><|im_end|>\n"})
    tokens = [subprocess.run([espalier_bin, "eval", "tokenize", source], input=text, capture_output=True, text=True, check=True).stdout
              for source in (folder, file)]
    assert tokens[0] == tokens[1] and len(tokens[0]) > 20
    replies = [run(espalier_bin, "run", source, "Say something about trees.", "--temp", 0, "--max-tokens", 24) for source in (folder, file)]
    assert replies[0].returncode == 0, replies[0].stderr
    assert replies[0].stdout == replies[1].stdout and len(replies[0].stdout) > 10, replies[1].stderr
    facts = [json.loads(run(espalier_bin, "inspect", source, "--json").stdout) for source in (folder, file)]
    for key in ("tensors", "parameters", "mtp", "lm_head", "tokenizer", "chat_template", "tool_format"):
        assert facts[0][key] == facts[1][key], key


def test_tokenizers_that_cannot_be_used_are_refused(with_tokenizer, espalier_bin, tmp_path):
    _, _, metadata, tensors = with_tokenizer
    change = {
        "tokenizer.ggml.pre": (STRING, "llama-bpe", "tokenizer.ggml.pre is 'llama-bpe', supported are qwen2 and qwen35"),
        "tokenizer.ggml.model": (STRING, "llama", "tokenizer.ggml.model is 'llama', only 'gpt2'"),
        "tokenizer.ggml.add_bos_token": (BOOL, 1, "tokenizer.ggml.add_bos_token is true"),
        "tokenizer.ggml.merges": (STRING, ["a"], "tokenizer.ggml.merges: entry 0 is 'a'"),
        "tokenizer.ggml.tokens": (STRING, [], "tokenizer.ggml.tokens has 0 entries"),
        "tokenizer.ggml.token_type": (STRING, "x", "metadata tokenizer.ggml.token_type is 'x', expected an array of integers"),
    }
    for key, (kind, value, message) in change.items():
        changed = [(name, kind, value) if name == key else (name, *rest) for name, *rest in metadata]
        write_file(tmp_path / "model.gguf", changed, tensors)
        done = run(espalier_bin, "run", tmp_path / "model.gguf", "Hello")
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and message in done.stderr, done.stderr
    without = [item for item in metadata if not item[0].startswith("tokenizer.ggml.t")]
    write_file(tmp_path / "model.gguf", without, tensors)
    done = run(espalier_bin, "run", tmp_path, "Hello")  # the folder stands for its only model
    assert done.returncode == 1 and "metadata tokenizer.ggml.tokens is missing" in done.stderr, done.stderr


def test_types_that_are_expanded_are_said(reference, espalier_bin, tmp_path):
    checkpoint, _ = reference("tiny_a")
    write_file(tmp_path / "model.gguf", *convert(checkpoint, "Q8_0"))
    done = run(espalier_bin, "inspect", tmp_path / "model.gguf")
    assert done.returncode == 0 and "of Q8_0 are expanded to BF16 when loaded" in done.stdout
    done = run(espalier_bin, "quantize", tmp_path / "model.gguf", tmp_path / "out", "--recipe", "nvfp4")
    assert done.returncode == 1 and "a GGUF file cannot be quantised yet" in done.stderr


def test_damaged_files_give_one_line(reference, espalier_bin, tmp_path):
    checkpoint, _ = reference("tiny_b")
    metadata, tensors = convert(checkpoint)
    whole_path = tmp_path / "whole.gguf"
    write_file(whole_path, metadata, tensors)
    whole = whole_path.read_bytes()
    other = [("general.architecture", STRING, "llama") if key == "general.architecture" else (key, kind, value)
             for key, kind, value in metadata]
    (tmp_path / "ids.json").write_text("[1, 2, 3]")

    def fails(path, word):
        done = run(espalier_bin, "eval", "logits", path, "--ids", tmp_path / "ids.json", "--out", tmp_path / "x.npy")
        assert done.returncode == 1, word
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("espalier: ") and word in done.stderr, done.stderr

    damage = {"truncated": whole[:-100], "GGUF": b"", "version": whole[:4] + b"\1\0\0\0" + whole[8:],
              "at most": whole[:8] + b"\xff" * 8 + whole[16:]}
    for word, data in damage.items():
        (tmp_path / "damaged.gguf").write_bytes(data)
        fails(tmp_path / "damaged.gguf", word)
    write_file(tmp_path / "other.gguf", other, tensors)
    fails(tmp_path / "other.gguf", "general.architecture is 'llama'")
    write_file(tmp_path / "extra.gguf", metadata, [*tensors, ("blk.0.attn_sinks.weight", "F32", (4,), bytes(16))])
    fails(tmp_path / "extra.gguf", "'blk.0.attn_sinks.weight' F32 [4]")
    write_file(tmp_path / "less.gguf", metadata, tensors[:-1])
    fails(tmp_path / "less.gguf", "is missing")
    parts = write_split(tmp_path / "split", metadata, tensors, 3)
    parts[0].rename(tmp_path / "away")
    fails(parts[1], "part 1 of 3 is missing")
    shutil.copy(parts[1], parts[0])
    fails(parts[2], "expected part 1 of 3")
