from types import SimpleNamespace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from opentinker.sampling.network import Network, context, is_local, reach

SMALL = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3))


def llama():
    return LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=2, initializer_range=0.3))


def sliding():
    return MistralForCausalLM(MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=6, initializer_range=0.3))


@pytest.fixture(params=[gpt2, llama, sliding])
def network(request):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network(request.param().eval())


def plain(network, ids):
    """Logits after the last id, by a forward pass of the row alone."""
    with torch.no_grad():
        return network.model(torch.tensor([ids])).logits[0, -1]


def test_left_padded_rows_have_the_logits_of_rows_alone(network):
    # learned positions, rotary positions, a window shorter than the padding
    prompts = [[7, 8, 9, 10, 11, 12, 13, 14, 15], [3], [20, 21, 22]]
    with torch.inference_mode():
        logits, prefix = network.prefill(prompts, use_cache=True)
        for row, prompt in enumerate(prompts):
            torch.testing.assert_close(logits[row], plain(network, prompt), atol=1e-5, rtol=0)
        # row 1 twice, row 2 gone, then three more ids each
        prefix.select(torch.tensor([1, 0, 1]))
        rows = [[3], prompts[0], [3]]
        for step in range(3):
            ids = [30 + step, 40 + step, 35 - step]
            rows = [[*row, id] for row, id in zip(rows, ids, strict=True)]
            logits = network.step(prefix, torch.tensor(ids))
            for row, whole in enumerate(rows):
                torch.testing.assert_close(logits[row], plain(network, whole), atol=1e-5, rtol=0)


def test_score_is_the_log_softmax_of_a_plain_forward(network):
    rows = [[5, 6, 7, 8, 9, 10, 11, 12], [1, 2]]
    with torch.inference_mode():
        scores = network.score(rows, 3, temperature=1.7)
    for row, scored in ((rows[0], scores[0]), (rows[1], scores[1][-1:])):
        with torch.no_grad():
            logits = network.model(torch.tensor([row])).logits[0]
        logp = torch.log_softmax(logits / 1.7, dim=-1)
        expected = [logp[at - 1, row[at]].item() for at in range(len(row) - len(scored), len(row))]
        assert scored.tolist() == pytest.approx(expected, abs=1e-5)


def test_a_model_that_is_left_in_training_mode_samples_without_dropout():
    config = GPT2Config(vocab_size=50, n_positions=64, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0.5)
    network = Network(GPT2LMHeadModel(config).train())
    with torch.inference_mode():
        first, second = (network.prefill([[1, 2, 3]], use_cache=False)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [((), "empty"), ((3, 50), "id 50 is none of the model's"), ((-1, 3), "id -1 is none"), ((0, 49), None)],
)
def test_prompts_that_cannot_be_read_are_named(prompt, message):
    fault = Network(gpt2()).fault(prompt)
    assert fault is None if message is None else message in fault


LONG = {"rope_type": "longrope", "original_max_position_embeddings": 32}
PLAIN = {"rope_type": "default"}


@pytest.mark.parametrize(
    ("settings", "room"),
    [({"rope_parameters": PLAIN}, 64), ({"rope_parameters": LONG}, 32), ({"rope_scaling": {**LONG, "type": "su"}}, 32),
     ({"rope_parameters": {"full_attention": LONG, "sliding_attention": PLAIN}}, 32),
     ({"rope_parameters": {"rope_type": "longrope"}, "original_max_position_embeddings": 16}, 16),
     ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, 64), ({}, 64)],
)  # fmt: skip
def test_a_model_that_reads_long_rows_otherwise_has_room_for_short_ones(settings, room):
    config = SimpleNamespace(max_position_embeddings=64, **settings)
    assert context(config) == room
    assert reach(config) == (None if settings in ({}, {"rope_parameters": PLAIN}) else room)


@pytest.mark.parametrize(
    ("settings", "local"),
    [({}, False), ({"sliding_window": None, "max_window_layers": 28}, False), ({"sliding_window": 6}, True),
     ({"sliding_window": 64}, False), ({"window_size": 6}, True), ({"attention_chunk_size": 8}, True),
     ({"num_local_experts": 4}, False), ({"use_sliding_window": True}, False), ({"local_windows": [4, 9]}, True),
     ({"sliding_window": 6, "layer_types": ["full_attention"]}, False),
     ({"sliding_window": 6, "layer_types": ["full_attention", "sliding_attention"]}, True),
     ({"sliding_window": 64, "layer_types": ["full_attention", "sliding_attention"]}, False),
     ({"layer_types": ["chunked_attention"]}, True), ({"layer_types": ["other"]}, True)],
)  # fmt: skip
def test_any_number_that_may_be_a_windows_size_counts(settings, local):
    assert is_local(SimpleNamespace(**settings), 64) is local
