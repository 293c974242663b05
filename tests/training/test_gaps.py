"""One test per gap or assumption of `gaps.py`, in its order: red when a version of verl changes it."""

from __future__ import annotations

import inspect

import pytest
import torch

from opentinker.training import gaps
from opentinker.training.bringup import bring_up, quiet, verl_environment


@pytest.fixture(scope="module", autouse=True)
def verl():
    bring_up()


def test_1_torch_refuses_the_backend_verl_would_name():
    import torch.distributed as dist
    from verl.utils import device, distributed

    source = inspect.getsource(distributed.initialize_global_process_group_ray)
    assert 'f"cpu:gloo,{get_device_name()}:{get_nccl_backend()}"' in source and "is_initialized()" in source
    name = f"cpu:gloo,{device.get_device_name()}:{device.get_nccl_backend()}"
    assert name == "cpu:gloo,cpu:gloo"
    with pytest.raises(ValueError, match="[Dd]uplicate|[Ii]nvalid"):
        dist.BackendConfig(dist.Backend(name))
    gaps.join_process_group()
    assert dist.is_initialized() and dist.get_world_size() == 1


def build(tiny, model_type, **engine):
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
    from verl.workers.engine.fsdp import transformer_impl as fsdp

    kinds = {"language_model": fsdp.FSDPEngineWithLMHead, "value_model": fsdp.FSDPEngineWithValueHead}
    with verl_environment(), quiet():
        model = HFModelConfig(
            path=str(tiny),
            load_tokenizer=False,
            use_remove_padding=False,
            override_config={"attn_implementation": "sdpa"},
            enable_gradient_checkpointing=False,
        )
        model.model_type = model_type
        config = FSDPEngineConfig(strategy="fsdp2", use_torch_compile=False, **engine)
        built = kinds[model_type](model, config, FSDPOptimizerConfig(lr=0.1, total_training_steps=1), CheckpointConfig())
        built.initialize()
    return built


@pytest.mark.skipif(torch.accelerator.is_available(), reason="pinned memory exists here")
def test_2_a_forward_only_model_needs_unpinned_offload(tiny, monkeypatch):
    from torch.distributed.fsdp import CPUOffloadPolicy
    from verl.workers.engine.fsdp import transformer_impl

    monkeypatch.setattr(transformer_impl, "CPUOffloadPolicy", CPUOffloadPolicy)
    with pytest.raises(RuntimeError, match="accelerator|pin"):
        _forward(build(tiny, "language_model", forward_only=True))
    gaps.unpinned_offload()
    assert _forward(build(tiny, "language_model", forward_only=True)).shape == (1, 3, 259)


def _forward(engine):
    with torch.no_grad():
        return engine.module(input_ids=torch.tensor([[5, 6, 7]]), use_cache=False).logits


def test_3_a_critic_loads_without_flash_attention(tiny, monkeypatch):
    from verl.utils import model as verl_model

    monkeypatch.setattr(verl_model, "load_valuehead_model", verl_model.load_valuehead_model)
    assert "flash_attention_2" in inspect.getsource(verl_model.load_valuehead_model)
    gaps.value_head_attention()
    assert _forward(build(tiny, "value_model")).shape == (1, 3, 1)


def test_4_verl_asks_the_platforms_engine_for_inputs_and_outputs():
    from verl.workers.engine import EngineRegistry
    from verl.workers.engine.fsdp import FSDPEngineWithLMHead

    from opentinker.training.engine import CpuEngine

    with verl_environment():
        assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is CpuEngine
    for name in ("prepare_model_inputs", "prepare_model_outputs"):
        ours, theirs = getattr(CpuEngine, name), getattr(FSDPEngineWithLMHead, name)
        assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()


def test_4_the_loss_takes_the_response_of_rows_padded_on_the_right(sample):
    """Rows of 1 + 2 and 1 + 1 ids: packed log-probabilities 1 2 . | 3 . become [[1, 2], [3, 0]]."""
    from verl.workers.utils.padding import no_padding_2_padding

    from opentinker.training.batch import make_rows, to_batch

    rows = make_rows([sample([5], [6, 7]), sample([5], [8])])
    batch = to_batch(rows, denominator=3.0, sequences=2, by_row=True)
    packed = torch.tensor([1.0, 2.0, 0.0, 3.0, 0.0])
    nested = torch.nested.nested_tensor_from_jagged(packed, torch.tensor([0, 3, 5]))
    assert no_padding_2_padding(nested, batch).tolist() == [[1.0, 2.0], [3.0, 0.0]]


def test_5_a_loss_divides_by_the_sum_of_the_loss_mask(make_worker, sample):
    from opentinker.training.batch import make_rows, to_batch

    worker = make_worker()
    rows = make_rows([sample([5], [6], weight=1), sample([5], [7], weight=1)])
    seen = []
    worker._worker.set_loss_fn(lambda **kwargs: (seen.append(kwargs["data"]["batch_num_tokens"]), worker.sft(**kwargs))[1])
    worker._worker.forward_backward(to_batch(rows, denominator=17.0, sequences=2, by_row=False))
    worker.engine.optimizer_zero_grad()
    assert seen == [17.0]


def test_6_the_engine_holds_module_optimizer_and_their_settings(make_worker):
    worker = make_worker()
    names = [name for name, _ in worker.parameters()]
    assert "model.embed_tokens.weight" in names and set(names) == set(worker.weights())
    held = {id(p) for group in worker.engine.optimizer.param_groups for p in group["params"]}
    assert held == {id(parameter) for _, parameter in worker.parameters()}
    assert worker.engine.optimizer_config.clip_grad == 1.0


def test_7_lora_is_peft_s_model_with_an_adapter_called_default(make_engine, tiny):
    from peft import PeftModel

    engine, base = make_engine({"rank": 4, "alpha": 6.5, "targets": ["0.self_attn.q_proj"]})
    module = engine.engine.module
    assert isinstance(module, PeftModel) and module.get_base_model() is module.base_model.model
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    parameters = dict(module.named_parameters())
    trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
    assert trained == {f"{layer}.lora_A.default.weight", f"{layer}.lora_B.default.weight"}
    frozen = {name.removeprefix("base_model.model.").replace(".base_layer.", ".") for name in parameters.keys() - trained}
    assert frozen == {name for name, _ in base.model.named_parameters()}
    assert module.get_submodule(layer).scaling == {"default": 6.5 / 4}


def test_8_resharded_parameters_stay_where_they_are(make_engine, sample):
    from opentinker.training.batch import make_rows
    from opentinker.training.worker import local

    engine, _ = make_engine({"rank": 4})
    rows = make_rows([sample([5], [6])])

    def places():
        engine.rest()
        return {name: local(parameter).data_ptr() for name, parameter in engine.engine.module.named_parameters()}

    before = places()
    engine.step(rows, engine.sft, 1e-2)
    engine.log_probs(rows)
    assert places() == before


def test_9_an_adapter_on_the_output_layer_cannot_be_built(make_engine):
    from opentinker.sampling.adapters import AdapterShape

    _, base = make_engine({"rank": 4})
    with pytest.raises(TypeError, match="object layout differs"):
        base.engine(AdapterShape(4, 8.0, ("lm_head",)))
