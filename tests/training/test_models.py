from __future__ import annotations

import json

import pytest
import torch

from opentinker.config import PolicyConfig
from opentinker.errors import ConfigError
from opentinker.training.models import load_model, load_tokenizer, model_folder, no_dropout


def test_tiny_follows_the_runs_seed_and_the_policys_name_or_its_own_seed(tmp_path):
    def weights(name, run_seed, own_seed=None):
        folder = model_folder(name, PolicyConfig(model="tiny", seed=own_seed), run_seed, tmp_path)
        return load_model(folder).get_input_embeddings().weight

    first, again, other_name, other_run = (weights(*key) for key in (("a", 1), ("a", 1), ("b", 1), ("a", 2)))
    assert torch.equal(first, again) and not torch.equal(first, other_name) and not torch.equal(first, other_run)
    assert torch.equal(weights("a", 1, 5), weights("b", 2, 5))


def test_a_local_folder_is_taken_as_it_is(tiny, tmp_path):
    folder = model_folder("a", PolicyConfig(model=str(tiny)), 0, tmp_path)
    assert folder == tiny and load_tokenizer(folder).decode([70]) != ""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("tinny", r"policies.a.model: 'tinny' is neither 'tiny' nor a local folder.*HF_HUB_OFFLINE=0.* mean 'tiny'\?"),
        ("./no/such/folder", "neither 'tiny' nor a local folder"),
        ("someone/no-such-model", "nor in the Hugging Face cache"),
    ],
)
def test_a_model_that_does_not_exist_is_told_without_asking_a_network(model, message, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(ConfigError, match=message):
        model_folder("a", PolicyConfig(model=model), 0, tmp_path)


def test_a_folder_without_a_model_and_a_broken_one_are_told(tmp_path):
    with pytest.raises(ConfigError, match="holds no config.json"):
        model_folder("a", PolicyConfig(model=str(tmp_path)), 0, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot load a causal language model"):
        load_model(tmp_path)


def test_adapters_share_a_tiny_base_that_follows_the_runs_seed_or_their_own(tmp_path):
    def weights(name, run_seed, own_seed=None):
        policy = PolicyConfig(model="tiny", seed=own_seed, adapter={"rank": 4})
        folder = model_folder(name, policy, run_seed, tmp_path)
        return folder, load_model(folder).get_input_embeddings().weight

    (folder, first), (other, second), (_, another_run), (_, own) = (
        weights(*key) for key in (("a", 1), ("b", 1), ("a", 2), ("a", 1, 5))
    )
    assert folder == other and torch.equal(first, second)
    assert not torch.equal(first, another_run) and not torch.equal(first, own)
    full = load_model(model_folder("a", PolicyConfig(model="tiny", seed=5), 1, tmp_path)).get_input_embeddings().weight
    assert torch.equal(own, full)


def test_an_adapters_folder_is_no_model_and_says_what_to_do(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="an adapter without its base; export it with --form merged"):
        model_folder("a", PolicyConfig(model=str(tmp_path)), 0, tmp_path)


def test_dropout_is_turned_off_wherever_the_configuration_has_it(tiny, tmp_path):
    config = json.loads((tiny / "config.json").read_text()) | {"attention_dropout": 0.1, "resid_pdrop": 0.2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert no_dropout(tmp_path) == {"attention_dropout": 0.0, "resid_pdrop": 0.0}
    assert no_dropout(tiny) == {}
