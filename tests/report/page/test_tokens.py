import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from opentinker.report.page.tokens import Vocabulary, vocabularies
from opentinker.report.runs import RunRecord
from opentinker.testing.runs import byte_ids, write_run, write_tokenizer


@pytest.fixture
def byte_level(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json")
    return Vocabulary((tmp_path / "tokenizer.json").read_text())


def test_byte_level_ids_are_bytes_and_marks_are_their_text(byte_level):
    text = "a caf\u00e9\n\U0001f600 \u00ad\x00"
    assert b"".join(byte_level.bytes_of(id) for id in byte_ids(text)) == text.encode()
    assert byte_level.bytes_of(1) == b"<|im_start|>"
    assert byte_level.bytes_of(1000) is None
    assert byte_level.table([1, 1000, *byte_ids("\u00e9")]) == {
        "ids": [1, *sorted(byte_ids("\u00e9"))],
        "texts": ["<|im_start|>", "\u00a9", "\u00c3"],
        "special": [0],
    }


def test_the_tiny_models_tokenizer_is_read_like_its_own_decoder(tmp_path):
    from opentinker.sampling.tiny import build_tokenizer

    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    vocabulary = Vocabulary((tmp_path / "tokenizer.json").read_text())
    text = "Card K. \u00fc\U0001f600\r\n\t"
    ids = tokenizer(text)["input_ids"]
    assert b"".join(vocabulary.bytes_of(id) for id in ids).decode() == text == tokenizer.decode(ids)


def test_sentencepiece_spaces_and_spare_bytes():
    pieces = ["<unk>", "\u2581the", "\u2581cat", "s", "<0xC3>", "<0xA9>"]
    tokenizer = Tokenizer(models.BPE(vocab={piece: id for id, piece in enumerate(pieces)}, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    vocabulary = Vocabulary(tokenizer.to_str())
    assert b"".join(vocabulary.bytes_of(id) for id in (1, 2, 3, 4, 5, 6)).decode() == " the cats\u00e9</s>"


def test_a_policy_finds_the_newest_tokenizer_or_that_of_its_model(tmp_path):
    run = write_run(tmp_path / "run", {"policies": {"b": {"model": str(tmp_path / "model")}, "c": None}}, [], [])
    for step in ("step-000001", "step-000020"):
        write_tokenizer(run / "checkpoints" / step / "policies" / "a" / "weights" / "tokenizer.json")
    write_tokenizer(tmp_path / "model" / "tokenizer.json")
    record = RunRecord.read(run)
    found = vocabularies(record, ["a", "b", "c", "../a", "", "x\0y", ".."])
    assert set(found) == {"a", "b"}
    assert found["a"] is found["b"]  # one text, one vocabulary
    (run / "checkpoints" / "step-000020" / "policies" / "a" / "weights" / "tokenizer.json").write_text("{torn")
    assert set(vocabularies(record, ["a"])) == {"a"}


def test_a_tokenizer_that_cannot_be_read_is_passed_over_with_a_warning(tmp_path, caplog):
    run = write_run(tmp_path / "run", {}, [], [])
    for number, text in enumerate(["{", json.dumps({"version": "1.0"}), "[]", "\ud800"]):
        file = run / "checkpoints" / f"step-{number:06d}" / "policies" / "a" / "weights" / "tokenizer.json"
        file.parent.mkdir(parents=True)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert vocabularies(RunRecord.read(run), ["a"]) == {}
    assert caplog.text.count("no tokenizer can be read from") == 4
