import pytest
import torch
from transformers import Lfm2Config, Lfm2ForCausalLM, MambaConfig, MambaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from opentinker.errors import ConfigError, DuplicateId, UnknownId
from opentinker.sampling.policies import Policies, make_served
from opentinker.sampling.tiny import build_tiny, build_tokenizer
from opentinker.types import PolicyRef


@pytest.fixture
def policies():
    found = Policies()
    found.add(make_served("learner", *build_tiny(1), version=4))
    return found


def weight(policies, ref):
    return policies.resolve(PolicyRef.parse(ref)).network.model.state_dict()["lm_head.weight"].clone()


def test_load_copies_and_counts(policies):
    new = build_tiny(2)[0].state_dict()
    policies.load("learner", new, 5, "latest")
    assert policies.resolve(PolicyRef("learner")).version == 5
    assert policies.resolve(PolicyRef("learner", "5")).version == 5
    assert torch.equal(weight(policies, "learner"), new["lm_head.weight"])
    new["lm_head.weight"].zero_()  # a copy was taken
    assert weight(policies, "learner").abs().max() > 0


def test_variants_have_weights_of_their_own(policies):
    before = weight(policies, "learner")
    policies.load("learner", build_tiny(2)[0].state_dict(), 3, "ema")
    assert torch.equal(weight(policies, "learner@latest"), before)
    assert torch.equal(weight(policies, "learner@ema"), build_tiny(2)[0].state_dict()["lm_head.weight"])
    assert policies.resolve(PolicyRef("learner", "ema")).version == 3


def test_unknown_policies_and_versions_are_named(policies):
    with pytest.raises(UnknownId, match="unknown policy 'lerner'; did you mean 'learner'?"):
        policies.resolve(PolicyRef("lerner"))
    with pytest.raises(UnknownId, match=r"unknown version of policy 'learner' '7'; known: latest \(latest is 4\)"):
        policies.resolve(PolicyRef("learner", "7"))
    with pytest.raises(UnknownId, match="unknown policy 'other'"):
        policies.load("other", {}, 1, "latest")
    with pytest.raises(UnknownId, match="serves none yet"):
        Policies().resolve(PolicyRef("learner"))


def test_an_old_version_is_unknown_once_it_was_replaced(policies):
    assert policies.resolve(PolicyRef("learner", "4")).version == 4
    policies.load("learner", build_tiny(2)[0].state_dict(), 5, "latest")
    with pytest.raises(UnknownId, match="'4'"):
        policies.resolve(PolicyRef("learner", "4"))


def test_a_name_is_taken_once(policies):
    with pytest.raises(DuplicateId, match="already serves policy 'learner'"):
        policies.add(make_served("learner", *build_tiny(1), version=0))


def test_weights_that_do_not_fit_change_nothing(policies):
    before = weight(policies, "learner")
    state = build_tiny(2)[0].state_dict()
    del state["model.norm.weight"]
    state["model.extra"] = torch.zeros(1)
    state["model.embed_tokens.weight"] = torch.zeros(3, 64)
    message = (
        r"of policy 'learner'; missing: model.norm.weight; unknown: model.extra; "
        r"shape: model.embed_tokens.weight is \(3, 64\) and not \(259, 64\)"
    )
    with pytest.raises(ConfigError, match=message):
        policies.load("learner", state, 9, "latest")
    assert torch.equal(weight(policies, "learner"), before)
    assert policies.resolve(PolicyRef("learner")).version == 4


def test_one_name_of_tied_weights_is_enough():
    config = Qwen2Config(
        vocab_size=259, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    policies = Policies()
    policies.add(make_served("tied", model, build_tokenizer(), version=0))
    state = {name: torch.ones_like(tensor) for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    policies.load("tied", state, 1, "latest")
    assert weight(policies, "tied").eq(1).all()


def test_ends_of_text_come_from_tokenizer_and_generation_configuration():
    model, tokenizer = build_tiny(1)
    model.generation_config.eos_token_id = [1, 7]
    assert make_served("p", model, tokenizer, 0).reader.eos_ids == {1, 2, 7}
    assert make_served("p", model, tokenizer, 0, eos_ids=[9]).reader.eos_ids == {9}


def test_context_is_read_off_the_configuration_or_given():
    model, tokenizer = build_tiny(1)
    assert make_served("p", model, tokenizer, 0).room([1] * 1000) == 24
    assert make_served("p", model, tokenizer, 0, context=10).room([1] * 60) == 0


def mamba():
    return MambaForCausalLM(MambaConfig(vocab_size=259, hidden_size=16, state_size=4, num_hidden_layers=1))


def hybrid():
    config = Lfm2Config(
        vocab_size=259, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, layer_types=["conv", "full_attention"],
    )  # fmt: skip
    return Lfm2ForCausalLM(config)


@pytest.mark.parametrize(("build", "said"), [(mamba, "MambaForCausalLM"), (hybrid, "Lfm2ForCausalLM has layers of conv")])
def test_models_that_keep_more_than_keys_and_values_are_refused(build, said):
    with pytest.raises(
        ConfigError, match=f"policy 'p': {said}.* cannot draw from; it serves causal models whose layers all"
    ):
        make_served("p", build(), build_tokenizer(), 0)
