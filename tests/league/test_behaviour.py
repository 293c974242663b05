"""Behaviour read off a model equals what a plain Hugging Face forward pass gives."""

from __future__ import annotations

import asyncio

import pytest
import torch

from opentinker.cast import Cast
from opentinker.config import load_config
from opentinker.envs import open_env
from opentinker.errors import ConfigError
from opentinker.league.behaviour import Probe
from opentinker.league.exploitability import exploitability
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny

CONFIG = {
    "env": {"id": "kuhn_poker"},
    "coordinator": {"id": "turns"},
    "agents": {"*": {"policy": "learner", "memory": "last"}},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 1, "temperature": 0.7}}},
}


class _Host:
    def __init__(self) -> None:
        self.model, self.words = build_tiny(5)
        self.sampler = HFSampler()
        self.sampler.add("learner", self.model, self.words)
        self.score = self.sampler.score

    def tokenizer(self, policy):
        return self.words

    def max_context(self, policy):
        return 1024


def _open(config, host):
    env = open_env("kuhn_poker")

    async def main():
        tree = await env.call("tree")
        return tree, await Probe.open(tree, config, Cast(config, host), host, env)

    return asyncio.run(main())


def _by_hand(host, observation: str, temperature: float) -> torch.Tensor:
    prompt = f"<|im_start|>user\n{observation}<|im_end|>\n<|im_start|>assistant\n"
    ids = torch.tensor([host.words(prompt)["input_ids"]])
    with torch.no_grad():
        return (host.model(ids).logits[0, -1].double() / temperature).softmax(-1)


def test_probabilities_are_the_models_own_at_the_temperature_of_play():
    host = _Host()
    tree, probe = _open(load_config(CONFIG), host)
    reading = probe.read()
    p, b = host.words("p")["input_ids"][0], host.words("b")["input_ids"][0]
    lost = []
    for states in reading.behaviour.values():
        for observation, shares in states.items():
            expected = _by_hand(host, observation, 0.7)
            total = float(expected[p] + expected[b])
            assert shares["p"] == pytest.approx(float(expected[p]) / total, abs=1e-6)
            assert shares["b"] == pytest.approx(float(expected[b]) / total, abs=1e-6)
            lost.append(1 - total)
    assert len(lost) == 12  # three cards, four histories in which somebody acts
    assert reading.invalid == pytest.approx(sum(lost) / 12, abs=1e-6)
    assert 0 < exploitability(tree, reading.behaviour) < 1


def test_longer_replies_count_in_their_canonical_form_with_its_end():
    config = load_config(CONFIG, ["policies.learner.sampling={max_tokens: 4}"])
    host = _Host()
    _, probe = _open(config, host)
    observation, shares = next(iter(probe.read().behaviour["player_0"].items()))
    mass = {}
    for action in "pb":
        first = _by_hand(host, observation, 1.0)[host.words(action)["input_ids"][0]]
        prompt = f"<|im_start|>user\n{observation}<|im_end|>\n<|im_start|>assistant\n{action}"
        ids = torch.tensor([host.words(prompt)["input_ids"]])
        with torch.no_grad():
            end = host.model(ids).logits[0, -1].double().softmax(-1)[host.words.eos_token_id]
        mass[action] = float(first * end)
    assert shares["p"] == pytest.approx(mass["p"] / sum(mass.values()), rel=1e-4)


@pytest.mark.parametrize(
    "override, message",
    [("agents.*.memory=full", "memory: last"), ("agents.player_1={player: random_legal}", "policy in every seat")],
)
def test_seats_without_an_exact_behaviour_are_refused(override, message):
    with pytest.raises(ConfigError, match=message):
        _open(load_config(CONFIG, [override]), _Host())
