"""From a policy's configuration to a folder with its weights, and from there to a model."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from opentinker.config import PolicyConfig
from opentinker.errors import ConfigError
from opentinker.sampling.tiny import save_tiny
from opentinker.seeding import derive

TINY = "tiny"
_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$")


def model_folder(name: str, policy: PolicyConfig, seed: int, work_dir: Path) -> Path:
    """A local folder with the weights a policy starts from, in Hugging Face layout.

    Args:
        name: the policy's.
        policy: its configuration.
        seed: the run's; `tiny` without a seed of its own is drawn from it and the name, or, under an adapter, from it alone,
            so that adapters share it.
        work_dir: where `tiny` is written.

    Raises:
        ConfigError: the model does not exist here, or asks for what is not built.
    """
    if policy.model == TINY:
        drawn = tiny_seed(name, policy, seed)
        if policy.adapter is None:
            folder = work_dir / name
        else:
            folder = work_dir / f".base-{drawn}"  # no policy's name begins with a dot
            if folder.is_dir():
                return folder
        save_tiny(folder, drawn)
        return folder
    local = Path(policy.model).expanduser()
    if local.is_dir():
        if not (local / "config.json").is_file():
            adapter = (local / "adapter_config.json").is_file()
            why = "is an adapter without its base; export it with --form merged" if adapter else "is no model"
            raise ConfigError(f"policies.{name}.model: folder {policy.model!r} holds no config.json: it {why}")
        return local
    return _from_hub(name, policy.model)


def tiny_seed(name: str, policy: PolicyConfig, seed: int) -> int:
    """What the weights of `tiny` are drawn from, arguments as `model_folder`."""
    if policy.seed is not None:
        return policy.seed
    return derive(seed, "weights", name) if policy.adapter is None else derive(seed, "base")


def _from_hub(name: str, model: str) -> Path:
    """The folder of a model in the Hugging Face cache; downloads only where HF_HUB_OFFLINE is 0."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    offline = os.environ.get("HF_HUB_OFFLINE", "1").lower() not in ("0", "false", "no", "off", "")
    hint = " Did you mean 'tiny'?" if difflib.get_close_matches(model, [TINY]) else ""
    given = f"policies.{name}.model: {model!r} is neither 'tiny' nor a local folder"
    if not _HUB_ID.match(model) or model.startswith((".", "~")):
        raise ConfigError(f"{given}.{hint}")
    try:
        return Path(snapshot_download(model, local_files_only=offline))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError) as error:
        where = "nor in the Hugging Face cache; set HF_HUB_OFFLINE=0 to allow a download" if offline else "nor on the hub"
        raise ConfigError(f"{given} {where}.{hint}") from error


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer beside the weights."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    return tokenizer


def load_model(folder: Path) -> PreTrainedModel:
    """The model in float32, for inference.

    Raises:
        ConfigError: the folder's files are no causal language model.
    """
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot load a causal language model from {str(folder)!r}: {error}") from error
    model.eval()  # type: ignore[no-untyped-call]
    return model


def no_dropout(folder: Path) -> dict[str, float]:
    """Settings that turn dropout off: with it, the trainer's log-probabilities would not be the sampler's."""
    config: dict[str, Any] = AutoConfig.from_pretrained(str(folder)).to_dict()
    return {
        key: 0.0
        for key, value in config.items()
        if ("dropout" in key or "pdrop" in key) and isinstance(value, float) and value > 0
    }
