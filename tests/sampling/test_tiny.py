import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from opentinker.sampling.tiny import CONTEXT, build_tiny, save_tiny


def test_equal_seeds_give_equal_weights_and_others_differ():
    first, second, third = (build_tiny(seed)[0].state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], third["lm_head.weight"])


def test_the_global_generator_is_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    build_tiny(9)
    assert torch.equal(torch.rand(3), expected)


def test_every_text_survives_the_tokenizer(tiny):
    _, tokenizer = tiny
    text = "".join(map(chr, range(32, 127))) + "\n\t  two  spaces, grün, 漢字, 🂡"
    ids = tokenizer.encode(text)
    assert len(ids) == len(text.encode())  # one id a byte
    assert tokenizer.decode(ids) == text


def test_chat_template_is_chatml_and_ends_with_the_assistants_turn(tiny):
    _, tokenizer = tiny
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "<|im_start|>", "<|im_end|>"]
    assert tokenizer.eos_token_id == 2 and tokenizer.pad_token_id == 0


def test_what_is_saved_loads_in_hugging_face_layout(tmp_path):
    save_tiny(tmp_path / "tiny", 4)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "tiny")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tiny")
    expected = build_tiny(4)[0].state_dict()
    assert all(torch.equal(expected[name], tensor) for name, tensor in model.state_dict().items())
    assert model.config.max_position_embeddings == CONTEXT
    assert tokenizer.encode("a<|im_end|>") == build_tiny(4)[1].encode("a<|im_end|>")
    assert len(tokenizer) == model.config.vocab_size == 1 + max(tokenizer.encode("<|endoftext|>\xff") + [258])
    assert tokenizer.chat_template == build_tiny(4)[1].chat_template


def test_the_waiting_room_needs_no_torch():
    code = "import sys, opentinker.sampling, opentinker.sampling.base; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
