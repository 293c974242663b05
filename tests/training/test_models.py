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


def test_an_adapter_is_refused_in_words(tmp_path):
    policy = PolicyConfig(model="tiny", adapter={"rank": 4})
    with pytest.raises(ConfigError, match="policies.a.adapter: LoRA adapters are not supported in this version"):
        model_folder("a", policy, 0, tmp_path)


def test_dropout_is_turned_off_wherever_the_configuration_has_it(tiny, tmp_path):
    config = json.loads((tiny / "config.json").read_text()) | {"attention_dropout": 0.1, "resid_pdrop": 0.2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert no_dropout(tmp_path) == {"attention_dropout": 0.0, "resid_pdrop": 0.0}
    assert no_dropout(tiny) == {}
