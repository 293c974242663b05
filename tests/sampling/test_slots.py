import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from opentinker.sampling.lean import make
from opentinker.sampling.network import Network
from opentinker.sampling.prefixes import Piece
from opentinker.sampling.slots import Read, Slots, fits
from opentinker.sampling.tiny import build_tiny

SMALL = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SMALL, "num_key_value_heads": 2, "initializer_range": 0.3}


def gpt2():
    config = GPT2Config(
        vocab_size=50, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3, bos_token_id=0, eos_token_id=0,
        tie_word_embeddings=False,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def llama():
    return LlamaForCausalLM(LlamaConfig(**GROUPED))


def eager():
    return LlamaForCausalLM._from_config(LlamaConfig(**GROUPED), attn_implementation="eager")


def qwen3():
    return Qwen3ForCausalLM(Qwen3Config(**GROUPED, head_dim=8))


def sliding():
    return MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=6))


def bloom():
    return BloomForCausalLM(BloomConfig(vocab_size=50, hidden_size=32, n_layer=2, n_head=4))


def network(build):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network(build().eval())


@pytest.fixture(params=[gpt2, llama, eager, qwen3])
def slots(request):
    return Slots(network(request.param))


def agree(slots, logits, rows):
    """Logits after each of the rows against a plain forward pass of the row alone."""
    for found, ids in zip(logits, rows, strict=True):
        with torch.no_grad():
            expected = slots.network.model(torch.tensor([ids])).logits[0, -1]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_rows_join_grow_move_and_leave_as_if_each_were_alone(slots):
    rows = [[7, 8, 9, 10, 11], [3], [20, 21, 22]]
    agree(slots, slots.read([Read(tuple(row), ()) for row in rows], 9), rows)
    rows = [[*row, 30 + at] for at, row in enumerate(rows)]
    agree(slots, slots.step([30, 31, 32]), rows)
    # the first leaves, the last is copied; one joins that is much longer than there is room for
    slots.settle([2, 1, 2])
    rows = [rows[2], rows[1], rows[2], [at % 50 for at in range(60)]]
    agree(slots, slots.read([Read(tuple(rows[3]), ())], 64), rows[3:])
    rows = [[*row, 40 + at] for at, row in enumerate(rows)]
    agree(slots, slots.step([40, 41, 42, 43]), rows)
    slots.settle([3])
    agree(slots, slots.step([5]), [[*rows[3], 5]])
    assert slots.lengths == [62]


@torch.inference_mode()
def test_what_was_cut_from_a_row_is_read_by_nobody_again(slots):
    """Two rows go on from pieces, one of them not to the end of its piece; one begins anew."""
    slots.read([Read((1, 2, 3, 4, 5, 6), ())], 8)
    pieces = [Piece(0, 4, slots.cut(0, 0, 4)), Piece(4, 1, slots.cut(0, 4, 6))]
    for cache in (slots, Slots(slots.network)):
        rows = [(1, 2, 3, 4, 5, 9, 9), (1, 2, 3, 4, 8), (9, 8)]
        reads = [Read(rows[0], pieces), Read(rows[1], pieces[:1]), Read(rows[2], ())]
        assert [read.known for read in reads] == [5, 4, 0]
        agree(cache, cache.read(reads, 9), rows)


@torch.inference_mode()
def test_a_row_that_is_no_number_spreads_to_nobody_and_a_wiped_slot_can_be_used_again(slots):
    embedding = slots.network.model.get_input_embeddings().weight
    embedding[17] = float("nan")
    rows = [(4, 17, 5, 6, 7), (4, 5)]
    logits = slots.read([Read(row, ()) for row in rows], 9)
    assert logits[0].isnan().any()
    agree(slots, logits[1:], rows[1:])
    slots.wipe(0)
    slots.settle([1])
    slots.read([Read((8,), ())], 9)
    slots.settle([1, 0])
    agree(slots, slots.step([1, 2]), [(8, 1), (4, 5, 2)])


@pytest.mark.parametrize(
    ("build", "suits", "lean"),
    [(gpt2, True, False), (llama, True, True), (eager, True, False), (qwen3, True, True),
     (sliding, False, False), (bloom, False, False), (lambda: build_tiny(1)[0], True, True)],
)  # fmt: skip
def test_what_suits_a_model_is_tried(build, suits, lean):
    found = network(build)
    with torch.inference_mode():
        assert fits(found) is suits
    assert (make(found.model) is not None) is lean


def test_weights_that_are_no_numbers_say_nothing_about_the_model():
    sick = network(llama)
    with torch.inference_mode():
        sick.model.lm_head.weight.fill_(float("nan"))
        assert fits(sick) is None


@pytest.mark.parametrize("change", ["hook", "forward", "module"])
def test_a_model_in_which_more_happens_is_called_itself(change):
    model, called = network(llama).model, []
    attention = model.model.layers[1].self_attn
    if change == "hook":
        attention.register_forward_hook(lambda *_: called.append(1))
    elif change == "forward":
        whole = attention.forward
        attention.forward = lambda *args, **settings: called.append(1) or whole(*args, **settings)
    else:
        model.model.layers[1].mlp.up_proj = torch.nn.Sequential(model.model.layers[1].mlp.up_proj, Note(called))
    with torch.inference_mode():
        slots = Slots(Network(model))
        called.clear()
        agree(slots, slots.read([Read((1, 2, 3), ())], 9), [(1, 2, 3)])
    assert called


class Note(torch.nn.Module):
    def __init__(self, called):
        super().__init__()
        self.called = called

    def forward(self, x):
        self.called.append(1)
        return x
