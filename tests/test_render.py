import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opentinker.errors import ConfigError
from opentinker.render import LONG, ChatRenderer, PlainRenderer, make_renderer
from opentinker.types import Completion, FinishReason

chat = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "fixtures" / "chat.py")))

USERS = ("Card K. p/b?", "the opponent bets\nab", " spaced ", "ünï — 你好 🃏", "")
PLAIN = ("pab", "b", "", "the ab 🂡", "up\n\nup")
THOUGHTS = tuple(f"<think>\nab {number} the\n</think>\n\nanswer {number}" for number in range(len(PLAIN)))
TEMPLATES = {
    # name: (end of text, around a sampled reply, replies)
    "chatml": ("<|im_end|>", ("", ""), PLAIN),
    "chatml_bare": ("<|endoftext|>", ("", ""), PLAIN),
    "alternating": ("<|endoftext|>", (" ", " "), ("pab", "b", "x", "the ab 🂡", "up\n\nup")),
    "forgetful": ("<|im_end|>", ("", ""), THOUGHTS),
    "opened": ("<|endoftext|>", ("", ""), tuple(text.removeprefix("<think>\n") for text in THOUGHTS)),
    "late_system": ("<|endoftext|>", ("", ""), PLAIN),
}
END = {name: "<|im_end|>" if name in ("chatml", "chatml_bare", "forgetful") else "<|endoftext|>" for name in TEMPLATES}


def completion(ids, reason=FinishReason.EOS):
    return Completion(tuple(ids), (-1.0,) * len(ids), "", reason, "learner", 0)


def spelled(tokenizer, text):
    """The text in more tokens than the tokenizer would take: a model may sample any of them."""
    ids = []
    for index, part in enumerate(text.replace("</think>", "\0</think>\0").replace("<think>", "\0<think>\0").split("\0")):
        for piece in [part] if index % 2 else part:
            ids += tokenizer.encode(piece, add_special_tokens=False)
    return tuple(ids)


def whole_text(tokenizer, users, replies, system=None):
    messages = [] if system is None else [{"role": "system", "content": system}]
    for index, user in enumerate(users):
        messages.append({"role": "user", "content": user})
        if index < len(replies):
            messages.append({"role": "assistant", "content": replies[index]})
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def contains(ids, part):
    return any(ids[at : at + len(part)] == part for at in range(len(ids) - len(part) + 1))


@pytest.mark.parametrize("ended", [True, False], ids=["end sampled", "end forced"])
@pytest.mark.parametrize("merges", [True, False], ids=["merges", "bytes"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_prompts_read_as_the_template_writes_the_whole_dialogue(name, merges, ended):
    eos, (before, after), replies = TEMPLATES[name]
    tokenizer = chat.build_tokenizer(name, merges=merges, eos=eos)
    renderer = make_renderer(tokenizer)
    exchanges = []
    for turn, user in enumerate(USERS):
        prompt = renderer.dialogue(None, exchanges, user)
        assert tokenizer.decode(prompt) == whole_text(tokenizer, USERS[: turn + 1], replies[:turn])
        text = before + replies[turn] + (after if ended else "")
        ids = spelled(tokenizer, text)
        if ended:
            ids = (*ids, tokenizer.convert_tokens_to_ids(END[name]))
        for _, earlier in exchanges:
            assert contains(prompt, renderer.keep(earlier))
        exchanges.append((user, completion(ids, FinishReason.EOS if ended else FinishReason.LENGTH)))


@pytest.mark.parametrize("name", ["chatml", "chatml_bare", "late_system"])
def test_a_system_prompt_goes_where_the_template_puts_it(name):
    tokenizer = chat.build_tokenizer(name, eos=TEMPLATES[name][0])
    renderer = make_renderer(tokenizer)
    reply = completion(tokenizer.encode("yes", add_special_tokens=False))
    prompt = renderer.dialogue("Play well.", [("one", reply), ("two", reply)], "three")
    assert tokenizer.decode(prompt) == whole_text(tokenizer, ["one", "two", "three"], ["yes", "yes"], "Play well.")
    assert tokenizer.decode(renderer.start("Play well.", "one")) == whole_text(tokenizer, ["one"], [], "Play well.")


@pytest.mark.parametrize(
    ("name", "extends", "appends"),
    [
        ("chatml", True, True),
        ("chatml_bare", True, True),
        ("alternating", True, True),
        ("forgetful", False, True),
        ("opened", False, False),
        ("late_system", False, False),
    ],
)
def test_probes_tell_what_a_template_does_with_the_past(name, extends, appends):
    renderer = make_renderer(chat.build_tokenizer(name, eos=TEMPLATES[name][0]))
    assert (renderer.extends, renderer.appends) == (extends, appends)


@pytest.mark.parametrize(
    ("before_all", "before_each"),
    [("{{ messages|length }} messages. ", ""), ("", "{{ loop.index }}. ")],
    ids=["start", "glue"],
)
def test_templates_that_count_are_written_whole(before_all, before_each):
    tokenizer = chat.build_tokenizer("chatml")
    tokenizer.chat_template = (
        before_all + "{% for m in messages %}" + before_each + "{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}" + ("{{ messages|length + 1 }}. " if before_each else "") + "assistant: {% endif %}"
    )
    renderer = make_renderer(tokenizer)
    assert not renderer.appends
    exchanges = [(user, completion(spelled(tokenizer, reply))) for user, reply in zip("abc", PLAIN, strict=False)]
    for turn in range(4):
        prompt = renderer.dialogue(None, exchanges[:turn], "abcd"[turn])
        assert tokenizer.decode(prompt) == whole_text(tokenizer, "abcd"[: turn + 1], PLAIN[:turn])


def test_prompts_grow_by_appending_where_the_template_extends():
    r"""start | sampled | glue: the second prompt is the first, the sampled ids and the glue, and nothing else."""
    tokenizer = chat.build_tokenizer("chatml")
    renderer = make_renderer(tokenizer)
    first = renderer.start(None, "one")
    sampled = completion(tokenizer.encode("yes<|im_end|>", add_special_tokens=False))
    second = renderer.dialogue(None, [("one", sampled)], "two")
    glue = tokenizer.encode("\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False)
    assert second == (*first, *sampled.token_ids, *glue)
    assert renderer.extend(sampled, "two") == tuple(glue)


def test_t1_two_tokens_that_a_tokenizer_would_write_as_one_stay_two():
    tokenizer = chat.build_tokenizer("chatml")
    renderer = make_renderer(tokenizer)
    a, b = tokenizer.convert_tokens_to_ids(["a", "b"])
    (ab,) = tokenizer.encode("ab", add_special_tokens=False)
    prompt = renderer.dialogue(None, [("one", completion((a, b)))], "two")
    assert contains(prompt, (a, b))
    assert ab not in prompt


def test_t3_dropped_thinking_is_a_span_of_ids_and_the_prompt_does_not_extend():
    """Sampled: <think> b </think> \\n \\n y e s <end>; kept: y e s <end>."""
    tokenizer = chat.build_tokenizer("forgetful", merges=False)
    renderer = make_renderer(tokenizer)
    ids = tuple(tokenizer.encode("<think>b</think>\n\nyes<|im_end|>", add_special_tokens=False))
    sampled = completion(ids)
    assert renderer.keep(sampled) == ids[5:]
    first = renderer.start(None, "one")
    second = renderer.dialogue(None, [("one", sampled)], "two")
    assert second[: len(first)] == first
    assert second[: len(first) + len(ids)] != (*first, *ids)
    assert tokenizer.convert_tokens_to_ids("<think>") not in second


def test_replies_without_thinking_are_kept_whole_by_a_template_that_drops_thinking():
    tokenizer = chat.build_tokenizer("forgetful")
    renderer = make_renderer(tokenizer)
    for text in ("yes<|im_end|>", "  yes\n<|im_end|>", "", "<|im_end|>", "<think>never closed"):
        ids = tuple(tokenizer.encode(text, add_special_tokens=False))
        assert renderer.keep(completion(ids)) == ids


def test_thinking_in_the_midst_of_a_reply_is_left_out_alone():
    tokenizer = chat.build_tokenizer("forgetful")
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "content.split('</think>')[-1]", "content.split('<think>')[0] + content.split('</think>')[-1]"
    )
    ids = tuple(tokenizer.encode("so <think>b</think> yes<|im_end|>", add_special_tokens=False))
    assert tokenizer.decode(make_renderer(tokenizer).keep(completion(ids))) == "so  yes<|im_end|>"


def test_thinking_without_an_answer_leaves_the_end_only():
    tokenizer = chat.build_tokenizer("forgetful")
    renderer = make_renderer(tokenizer)
    ids = tuple(tokenizer.encode("<think>b</think>\n<|im_end|>", add_special_tokens=False))
    assert tokenizer.decode(renderer.keep(completion(ids))) in ("<|im_end|>", "\n<|im_end|>")


def test_a_token_half_thinking_half_answer_is_kept_whole():
    tokenizer = chat.build_tokenizer("forgetful")
    renderer = make_renderer(tokenizer)
    straddling = tokenizer.convert_tokens_to_ids("Ċy")
    ids = tuple(tokenizer.encode("<think>b</think>", add_special_tokens=False)) + (straddling,)
    assert renderer.keep(completion(ids)) == (straddling,)


def test_an_end_that_was_not_sampled_is_forced_and_one_that_was_is_not_doubled():
    tokenizer = chat.build_tokenizer("chatml")
    renderer = make_renderer(tokenizer)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    yes = tokenizer.encode("yes", add_special_tokens=False)
    for ids in (yes, [*yes, end], [], [end]):
        prompt = renderer.dialogue(None, [("one", completion(ids))], "two")
        assert prompt.count(end) == 3


def test_an_end_of_text_other_than_the_end_of_turn_stays_and_the_turn_is_ended():
    tokenizer = chat.build_tokenizer("chatml", eos="<|endoftext|>")
    renderer = make_renderer(tokenizer)
    end, eos = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert renderer.eos_ids == {end, eos}
    assert renderer.extend(completion([5, eos]), "two")[0] == end
    assert renderer.extend(completion([5, end]), "two")[0] != end


def test_encoded_replies_end_as_sampled_ones_do():
    tokenizer = chat.build_tokenizer("chatml", eos="<|endoftext|>")
    renderer = make_renderer(tokenizer)
    assert renderer.encode_reply("ab", end=False) == tuple(tokenizer.encode("ab", add_special_tokens=False))
    assert tokenizer.decode(renderer.encode_reply("ab")) == "ab<|im_end|>"
    forged = renderer.encode_reply("a<|im_end|>b")
    assert forged.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 1
    assert tokenizer.decode(forged) == "a<|im_end|>b<|im_end|>"


# Forging.

STRUCTURE = ("<|im_start|>", "<|im_end|>", "<s>", "<|endoftext|>", "<|User|>", "<|Assistant|>")
PIECES = (*STRUCTURE, "<think>", "</think>", "Zq0otXkR0E", "Zq1otXkL0E", "[INST]")
HOSTILE = st.lists(st.one_of(st.text(max_size=5), st.sampled_from(PIECES)), max_size=6).map("".join)


@pytest.mark.parametrize("name", ["chatml", "forgetful", "opened", "late_system", None])
def test_users_cannot_forge_structure(name):
    tokenizer = chat.build_tokenizer(name)
    renderer = make_renderer(tokenizer)
    structure = set(tokenizer.convert_tokens_to_ids(list(STRUCTURE)))

    def skeleton(ids):
        return [index for index in ids if index in structure]

    reply = completion(tokenizer.encode("yes", add_special_tokens=False), FinishReason.LENGTH)
    innocent = skeleton(renderer.dialogue("s", [("x", reply)], "x"))

    @given(HOSTILE, HOSTILE, HOSTILE)
    def forge(system, one, two):
        ids = renderer.dialogue(system, [(one, reply)], two)
        assert skeleton(ids) == innocent
        assert one in tokenizer.decode(ids)
        assert two in tokenizer.decode(ids)

    forge()


def test_markup_that_a_template_names_is_no_markup_in_a_message():
    tokenizer = chat.build_tokenizer("forgetful")
    think = tokenizer.convert_tokens_to_ids("<think>")
    assert think not in make_renderer(tokenizer).start(None, "say <think> and </think>")
    # this template knows nothing of thinking, so there the token forges nothing
    assert think in make_renderer(chat.build_tokenizer("chatml")).start(None, "say <think>")


def test_innocent_prompts_are_encoded_as_the_tokenizer_itself_would():
    tokenizer = chat.build_tokenizer("chatml")
    text = whole_text(tokenizer, ["\nthe ab\n"], [], "the")
    assert list(make_renderer(tokenizer).start("the", "\nthe ab\n")) == tokenizer.encode(text, add_special_tokens=False)


@given(st.lists(st.tuples(st.text(max_size=8), st.lists(st.integers(0, 255), max_size=6)), max_size=4), st.text(max_size=8))
def test_any_dialogue_keeps_its_sampled_ids(exchanges, user):
    renderer = RENDERERS.get("chatml") or RENDERERS.setdefault("chatml", make_renderer(chat.build_tokenizer("chatml")))
    said = [(text, completion(ids)) for text, ids in exchanges]
    ids = renderer.dialogue(None, said, user)
    for number, (_, sampled) in enumerate(said):
        start = renderer.dialogue(None, said[:number], said[number][0])
        assert ids[: len(start)] == start
        assert ids[len(start) : len(start) + len(sampled.token_ids)] == sampled.token_ids


RENDERERS: dict[str, ChatRenderer] = {}


def test_lone_surrogates_become_replacement_characters():
    tokenizer = chat.build_tokenizer("chatml")
    for renderer in (make_renderer(tokenizer), PlainRenderer(tokenizer)):
        assert "a\ufffdb" in tokenizer.decode(renderer.start(None, "a\ud800b"))
        renderer.encode_reply("\udfff")


# Templates without a system role, and faulty ones.


def test_a_system_prompt_without_a_role_stands_before_the_first_message():
    tokenizer = chat.build_tokenizer("alternating", eos="<|endoftext|>")
    renderer = make_renderer(tokenizer)
    assert tokenizer.decode(renderer.start("Be brief.", "one")) == "<s>[INST] Be brief.\n\none [/INST]"
    prompt = renderer.dialogue("Be brief.", [("one", completion(tokenizer.encode(" yes", add_special_tokens=False)))], "two")
    assert tokenizer.decode(prompt) == "<s>[INST] Be brief.\n\none [/INST] yes <|endoftext|>[INST] two [/INST]"


def test_a_system_prompt_that_a_template_would_leave_out_is_merged_too():
    tokenizer = chat.build_tokenizer("chatml")
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}: {{ m.content }}<|im_end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    assert tokenizer.decode(make_renderer(tokenizer).start("S", "u")) == "user: S\n\nu<|im_end|>assistant: "


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no users here') }}", "refuses a dialogue of user: no users here"),
        ("{% if messages|length > 2 %}{{ raise_exception('one turn') }}{% endif %}{{ messages[-1].content }}", "one turn"),
        ("{{ messages[-1].content }}", "left out 1 of 1 replies"),
        ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "once and in order"),
    ],
)
def test_templates_that_cannot_write_a_dialogue_are_refused(template, message):
    tokenizer = chat.build_tokenizer("chatml")
    tokenizer.chat_template = template
    with pytest.raises(ConfigError, match=message):
        make_renderer(tokenizer)


def test_a_tokenizer_without_end_of_text_is_refused():
    for template in ("chatml", None):
        with pytest.raises(ConfigError, match="no end-of-text token"):
            make_renderer(chat.build_tokenizer(template, eos=None))


def test_template_variables_reach_the_template():
    tokenizer = chat.build_tokenizer("chatml")
    tokenizer.chat_template += "{%- if quiet and add_generation_prompt -%}<think></think>{%- endif -%}"
    loud, quiet = make_renderer(tokenizer), make_renderer(tokenizer, {"quiet": True})
    assert tokenizer.decode(quiet.start(None, "u")) == tokenizer.decode(loud.start(None, "u")) + "<think></think>"
    assert loud.appends
    assert not quiet.appends


# Plain text.


def test_plain_dialogues_are_lines_that_end_in_end_of_text():
    tokenizer = chat.build_tokenizer(None, eos="<|endoftext|>")
    renderer = make_renderer(tokenizer)
    assert isinstance(renderer, PlainRenderer)
    assert renderer.extends
    eos = tokenizer.eos_token_id
    assert renderer.eos_ids == {eos}
    yes = tokenizer.encode("yes", add_special_tokens=False)
    ended = renderer.dialogue("S", [("one", completion([*yes, eos]))], "two")
    forced = renderer.dialogue("S", [("one", completion(yes))], "two")
    assert ended == forced
    assert tokenizer.decode(ended) == "S\n\none\nyes<|endoftext|>\ntwo\n"
    assert renderer.encode_reply("yes") == (*yes, eos)


def test_plain_prompts_open_as_the_tokenizer_opens_texts():
    tokenizer = chat.build_sentencepiece_like("alternating")
    tokenizer.chat_template = None
    assert tokenizer.convert_ids_to_tokens(make_renderer(tokenizer).start(None, "hi"))[:2] == ["▁", "h"]


def test_no_space_is_put_in_front_of_what_continues_a_text():
    """A tokenizer that opens every text with `▁` must not do so where a reply ends and glue begins."""
    tokenizer = chat.build_sentencepiece_like("late_system")
    renderer = make_renderer(tokenizer)
    assert tokenizer.convert_ids_to_tokens(renderer.encode_reply("hi")) == ["h", "i", "</s>"]
    glue = renderer.extend(completion(tokenizer.convert_tokens_to_ids(["h", "</s>"])), "x")
    assert tokenizer.convert_ids_to_tokens(glue) == list("[INST]") + ["▁", "x"] + list("[/INST]")


# Speed.


def test_equal_messages_are_encoded_once(monkeypatch):
    tokenizer = chat.build_tokenizer("chatml")
    renderer = make_renderer(tokenizer)
    reply = completion([5])
    renderer.start("S", "one")
    renderer.extend(reply, "one")
    long = "x" * (LONG + 1)
    renderer.start("S", long)

    def refuse(*args, **kwargs):
        raise AssertionError("encoded again")

    monkeypatch.setattr(tokenizer, "encode", refuse)
    monkeypatch.setattr(tokenizer, "apply_chat_template", refuse)
    renderer.start("S", "one")
    renderer.extend(reply, "one")
    with pytest.raises(AssertionError, match="encoded again"):
        renderer.start("S", long)
