"""Samplers: what turns prompts into completions. `hf` holds the embedded one, `tiny` the default model."""
