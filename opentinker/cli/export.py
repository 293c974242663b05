"""`opentinker export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from opentinker.cli.app import app, out
from opentinker.cli.stopping import told_when_stopped


@app.command()
@told_when_stopped()
def export(
    run: Annotated[str, typer.Argument(help="A run's folder or name; RUN@STEP, @latest, @best or @ema.", metavar="RUN")],
    folder: Annotated[Path, typer.Argument(help="Where to write; missing or empty.")],
    policy: Annotated[str | None, typer.Option("--policy", help="Which policy, where the run has several.")] = None,
    form: Annotated[
        str | None, typer.Option("--form", help="hf: all weights. merged (default under LoRA) or peft: an adapter.")
    ] = None,
    ema: Annotated[bool, typer.Option("--ema", help="The averaged weights.")] = False,
) -> None:
    """Write a policy of RUN as a folder that transformers or PEFT load."""
    from opentinker.collector import paused_collector
    from opentinker.runs.forms import choose_export
    from opentinker.runs.reading import parse_run_ref, read_config

    ref = parse_run_ref(run)
    config, checkpoint = read_config(ref.path), ref.load()
    chosen = choose_export(config, checkpoint, folder, policy, form, ema or ref.ema)
    with paused_collector():
        from opentinker.training.export import export_policy

    written = export_policy(config, checkpoint, folder, policy=chosen.policy, form=chosen.form, ema=chosen.ema)
    out.print(f"{folder}: step {checkpoint.step} as {written}")
    if written == "peft":
        base = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
        out.print(f'load:  PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), "{folder}")')
        out.print(f"       the base's path stands in {folder / 'adapter_config.json'}, for tools that look there")
    else:
        out.print(f'load:  AutoModelForCausalLM.from_pretrained("{folder}"), or `model: {folder}` in a configuration')
