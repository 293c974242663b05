from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from opentinker.config import PolicyConfig, TrainConfig
from opentinker.errors import CheckpointError, ConfigError, TrainingFailed, UnknownId
from opentinker.training.host import LocalHost
from opentinker.types import PolicyRef, SamplingParams

TRAIN = {"optim": {"lr": 1e-2, "betas": (0.0, 0.999)}, "ema": 0.5}


def make_host(train=None, seed=1, **policies):
    policies = policies or {"learner": {}, "partner": {}, "rival": {"trainable": False}}
    config = {name: PolicyConfig(**{"model": "tiny", **settings}) for name, settings in policies.items()}
    return LocalHost(config, TrainConfig(**(TRAIN if train is None else train)), seed=seed, threads=1)


def play(host, sample, policy="learner", n=8, temperature=1.0):
    """Rows with the sampler's own log-probabilities; the ids 70 + i are good where i is even."""
    prompts, answers = [[5, 6, 7 + i % 2] for i in range(n)], [[70 + i % 4, 90] for i in range(n)]
    scores = host.score(PolicyRef(policy), prompts, answers, temperature)
    return [
        sample(prompt, answer, logprobs=score, advantages=1.0 - 2 * (i % 2), policy=policy, temperature=temperature)
        for i, (prompt, answer, score) in enumerate(zip(prompts, answers, scores, strict=True))
    ]


def bits(host, name):
    return {key: value.clone() for key, value in host.snapshot(name).items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


@pytest.fixture(scope="module")
def host():
    host = make_host()
    yield host
    host.close()


def test_p1_both_policies_update_in_one_run_and_the_frozen_one_never_changes(host, sample):
    before = {name: bits(host, name) for name in ("learner", "partner", "rival")}
    for name in ("learner", "partner"):
        host.update(name, play(host, sample, name), lr=1e-2)
    assert not same(before["learner"], bits(host, "learner"))
    assert not same(before["partner"], bits(host, "partner"))
    assert same(before["rival"], bits(host, "rival")) and host.version("rival") == 0
    assert host.score(PolicyRef("rival", "0"), [[5]], [[6]])
    with pytest.raises(ValueError, match="'rival' is frozen"):
        host.update("rival", play(host, sample, "rival"), lr=1e-2)
    with pytest.raises(ValueError, match="'rival' is frozen"):
        host.fit("rival", play(host, sample, "rival"), lr=1e-2)


def test_updating_one_policy_leaves_the_other_as_it_is(host, sample):
    before = bits(host, "partner")
    host.update("learner", play(host, sample), lr=1e-2)
    assert same(before, bits(host, "partner"))


def test_p3_the_sampler_serves_the_new_version_at_once(host, sample):
    before = host.version("learner")
    result = host.update("learner", play(host, sample), lr=1e-2)
    assert result.version == host.version("learner") == before + 1

    async def ask():
        host.sampler.enter()
        params = SamplingParams(max_tokens=2, seed=3)
        try:
            return await host.sample(PolicyRef("learner"), [5, 6, 7], params, key=(0, 0, "player_0", 0, 0))
        finally:
            host.sampler.leave()

    completion = asyncio.run(ask())
    assert (completion.policy, completion.version) == ("learner", before + 1)
    row = sample([5, 6, 7], completion.token_ids, logprobs=completion.logprobs)
    # the sampler's log-probabilities are the trainer's: the ratio of the next update starts at 1
    assert host.log_probs("learner", [row])[0] == pytest.approx(completion.logprobs, abs=1e-5)
    with pytest.raises(UnknownId):
        host.score(PolicyRef("learner", str(before)), [[5]], [[6]])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_sampler_and_trainer_agree_at_every_temperature(host, sample, temperature):
    rows = play(host, sample, temperature=temperature)
    for row, found in zip(rows, host.log_probs("learner", rows), strict=True):
        assert found == pytest.approx(row.logprobs[3:], abs=1e-5)


def test_samples_carry_the_temperature_they_were_drawn_at_and_no_other_is_trained_on(sample):
    host = make_host(learner={"sampling": {"temperature": 0.5}})

    async def ask():
        host.sampler.enter()
        params = SamplingParams(max_tokens=4, temperature=0.5, seed=3)
        try:
            return await host.sample(PolicyRef("learner"), [5, 6, 7], params, key=(0, 0, "player_0", 0, 0))
        finally:
            host.sampler.leave()

    drawn = asyncio.run(ask())
    assert drawn.temperature == 0.5
    row = sample([5, 6, 7], drawn.token_ids, logprobs=drawn.logprobs, temperature=drawn.temperature)
    result = host.update("learner", [row], lr=0.0)
    assert abs(result.metrics["kl"]) < 1e-5 and result.metrics["clip_fraction"] == 0
    with pytest.raises(ValueError, match=r"temperature 1 .*sampling.temperature is 0.5; .*temperatures=\{'learner': 0.5\}"):
        host.update("learner", [replace(row, temperature=1.0)], lr=0.0)
    host.close()


def test_rewarded_ids_become_likelier(sample):
    host = make_host(learner={})
    before = host.score(PolicyRef("learner"), [[5, 6, 7]] * 2, [[70], [71]])
    for _ in range(10):
        host.update("learner", play(host, sample), lr=1e-3)
    after = host.score(PolicyRef("learner"), [[5, 6, 7], [5, 6, 8]], [[70], [71]])
    assert after[0][0] > before[0][0]
    host.close()


def test_the_average_follows_at_its_decay_and_restarts_after_a_supervised_step(sample):
    host = make_host(learner={})
    start = bits(host, "learner")
    host.update("learner", play(host, sample), lr=1e-2)
    now = bits(host, "learner")
    expected = {name: 0.5 * start[name] + 0.5 * now[name] for name in now}
    rows = [[5, 6, 7]], [[70, 90]]
    averaged = host.score(PolicyRef("learner", "ema"), *rows)[0]
    host.sampler.load("learner", expected, 9, variant="mine")
    assert averaged == pytest.approx(host.score(PolicyRef("learner", "mine"), *rows)[0], abs=1e-6)
    assert averaged != pytest.approx(host.score(PolicyRef("learner"), *rows)[0], abs=1e-4)
    result = host.fit("learner", play(host, sample), lr=1e-2)
    assert result.version == 1 and result.metrics["loss"] > 0 and "kl" not in result.metrics
    assert host.score(PolicyRef("learner", "ema"), *rows) == host.score(PolicyRef("learner"), *rows)
    host.close()


def test_epochs_and_mini_batches_step_as_often_and_the_same_way_twice(sample):
    train = {**TRAIN, "epochs": 2, "mini_batches": 3}
    results = []
    for _ in range(2):
        host = make_host(train, learner={})
        result = host.update("learner", play(host, sample), lr=1e-3)
        results.append((result, bits(host, "learner")))
        host.close()
    (first, weights), (again, others) = results
    assert first.metrics["steps"] == 6 and first.version == 1
    assert dict(first.metrics) == dict(again.metrics) and same(weights, others)


def test_p7_merging_follows_the_configuration_and_counts_the_original_tokens(sample):
    steps = {}
    for merge in (True, False):
        host = make_host({**TRAIN, "merge_identical": merge}, learner={})
        result = host.update("learner", play(host, sample, n=16), lr=1e-3)
        steps[merge] = (result.metrics["rows"], result.metrics["tokens"], result.metrics["loss"], bits(host, "learner"))
        host.close()
    assert steps[True][:2] == (4, 32) and steps[False][:2] == (16, 32)
    assert steps[True][2] == pytest.approx(steps[False][2], abs=1e-6)


def test_merged_rows_are_refused_where_they_are_not_exact(sample):
    host = make_host({**TRAIN, "epochs": 2}, learner={})
    merged = [replace(row, weight=2) for row in play(host, sample)]
    with pytest.raises(ValueError, match="merged samples"):
        host.update("learner", merged, lr=1e-3)
    host.close()


def test_t4_nothing_sampled_is_no_update(host, sample):
    before, version = bits(host, "learner"), host.version("learner")
    result = host.update("learner", [sample([5, 6, 7])], lr=1e-2)
    assert result.version == version and result.metrics["tokens"] == 0 and same(before, bits(host, "learner"))


def test_samples_of_another_policy_are_refused(host, sample):
    with pytest.raises(ValueError, match=r"samples of \['partner'\] were given to policy 'learner'"):
        host.update("learner", play(host, sample, "partner"), lr=1e-2)
    with pytest.raises(UnknownId, match="did you mean 'learner'"):
        host.update("lerner", [], lr=1e-2)


def test_a_gradient_that_is_not_finite_changes_no_weights_and_is_counted(sample, caplog):
    host = make_host({"ema": 0.0}, learner={})
    before = bits(host, "learner")
    bad = [sample([5, 6], [7], logprobs=[-5.0], advantages=float("nan"))]
    result = host.update("learner", bad, lr=1e-2)
    assert result.metrics["skipped_steps"] == 1 and same(before, bits(host, "learner"))
    assert "the gradient is not finite" in caplog.text
    host.close()


def test_an_update_that_ruins_the_weights_is_an_error_that_names_the_policy_and_the_rate(sample):
    host = make_host(learner={})
    told = r"policy 'learner': .* weights are no numbers .*train\.optim\.lr \(it was 1e\+39\)"
    with pytest.raises(TrainingFailed, match=told):
        host.update("learner", play(host, sample), lr=1e39)


def test_updates_leave_torchs_generator_as_it_was(host, sample):
    rows = play(host, sample)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    host.update("learner", rows, lr=1e-3)
    assert torch.equal(torch.rand(3), expected)


def test_what_does_not_fit_is_told_before_anything_is_built():
    with pytest.raises(UnknownId, match="did you mean 'vanilla'"):
        make_host({"loss": "vanila"})
    with pytest.raises(ConfigError, match=r"policies\.learner\.model: 'tinny'"):
        make_host(learner={"model": "tinny"})


def test_context_and_tokenizer_are_the_models(host):
    assert host.max_context("rival") == 1024
    assert host.tokenizer("rival").decode(host.tokenizer("rival").encode("pass")) == "pass"
    host.offload("learner")
    host.onload("learner")


def test_a_saved_policy_loads_as_a_hugging_face_model_without_pickle(host, sample, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    host.update("learner", play(host, sample), lr=1e-2)
    host.save("learner", tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"weights", "ema.safetensors", "optimizer.safetensors", "state.json"}
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pt", ".bin", ".pkl", ".pth")]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "weights")
    assert same(dict(model.state_dict()), bits(host, "learner"))
    assert AutoTokenizer.from_pretrained(tmp_path / "weights").chat_template
    assert json.loads((tmp_path / "state.json").read_text())["version"] == host.version("learner")


def test_a_frozen_policy_is_saved_and_loaded_without_an_optimiser(host, tmp_path):
    host.save("rival", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"weights", "state.json"}
    before = bits(host, "rival")
    host.load("rival", tmp_path)
    assert same(before, bits(host, "rival"))


def test_torn_or_foreign_checkpoints_are_refused_and_change_nothing(host, sample, tmp_path):
    host.save("learner", tmp_path)
    host.update("learner", play(host, sample), lr=1e-2)
    before, version = bits(host, "learner"), host.version("learner")

    def refused(message, folder=tmp_path, policy="learner"):
        with pytest.raises(CheckpointError, match=message):
            host.load(policy, folder)
        assert same(before, bits(host, "learner")) and host.version("learner") == version

    refused("holds no saved policy", tmp_path / "nowhere")
    refused("'policy': 'partner'", policy="partner")
    good = (tmp_path / "state.json").read_text()
    (tmp_path / "state.json").write_text(good[:-8])
    refused("torn or altered")
    (tmp_path / "state.json").write_text(good)
    for name in ("optimizer.safetensors", "ema.safetensors", "weights/model.safetensors"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[:-100])
        refused("cannot read")
        (tmp_path / name).unlink()
        refused("cannot read")
        (tmp_path / name).write_bytes(data)
    host.load("learner", tmp_path)
    assert host.version("learner") == version - 1


@pytest.mark.parametrize("adapter", [None, {"rank": 2}])
def test_an_optimiser_that_does_not_fit_changes_nothing(adapter, sample, tmp_path):
    host = make_host(learner={} if adapter is None else {"adapter": adapter})
    host.update("learner", play(host, sample), lr=1e-3)
    host.save("learner", tmp_path)
    host.update("learner", play(host, sample), lr=1e-3)
    before = {**bits(host, "learner"), **moments(host)}
    good = load_file(tmp_path / "optimizer.safetensors")
    first = next(name for name in good if name.startswith("exp_avg/"))
    for bad in (
        {name: value for name, value in good.items() if name != first},
        {**good, "exp_avg/nobody": torch.zeros(2)},
        {**good, first: torch.zeros(3, 5)},
    ):
        save_file(bad, tmp_path / "optimizer.safetensors")
        with pytest.raises(CheckpointError, match="exp_avg/.* is (missing|unknown|.*and not)"):
            host.load("learner", tmp_path)
        assert same(before, {**bits(host, "learner"), **moments(host)}) and host.version("learner") == 2
    save_file(good, tmp_path / "optimizer.safetensors")
    host.load("learner", tmp_path)
    assert host.version("learner") == 1 and same(moments(host), good)
    host.close()


def moments(host):
    return {name: value.clone() for name, value in host._policies["learner"].worker.optimizer_state().items()}


def test_the_optimiser_can_be_reset(host, sample):
    host.update("learner", play(host, sample), lr=1e-3)
    assert host._policies["learner"].worker.optimizer_state()
    host.reset_optimizer("learner")
    assert not host._policies["learner"].worker.optimizer_state()
    assert host.update("learner", play(host, sample), lr=1e-3).metrics["steps"] == 1
