"""The page of a run as a person meets it: opened in a real browser, clicked, typed into, looked at."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest

from opentinker.report.page import write_page
from opentinker.report.record import episode_to_json
from opentinker.testing.runs import byte_ids, chat_ids, made_up_games, made_up_turn, write_run, write_tokenizer
from opentinker.types import Completion, Episode, EpisodeStatus, FinishReason, Message

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
ODD = "\0 \u202etxt.exe \ud800 \u2066 \U000e0041 \x1b[31m caf\u00e9 \U0001f469\u200d\U0001f680 \ufeff end"
CONFIG = {
    "name": "walk",
    "seed": 7,
    "policies": {"learner": {"model": "tiny"}},
    "train": {"steps": 20, "optim": {"lr": 0.001}},
}
ROWS = [
    {
        "step": step,
        "eval/exploitability/ema": 1 / (step + 1),
        "eval/exploitability/last": 1.5 / (step + 1),
        "rollout/player_0/return_mean": step / 20,
        "rollout/learner/entropy": None if step == 3 else 2.0,
        "train/learner/kl": 0.01,
    }
    for step in range(21)
]


def episode(id, turns, **fields):
    values = {
        "env": "kuhn_poker",
        "seed": 5,
        "group": int(id.split("/")[1]),
        "member": int(id.split("/")[2]),
        "roles": {"player_0": "player_0", "player_1": "player_1"},
        "opponents": {},
        "turns": tuple(turns),
        "messages": (),
        "final_prompts": {},
        "rewards": {"player_0": 1.0, "player_1": -1.0},
        "status": EpisodeStatus.TERMINATED,
    }
    return Episode(id=id, **{**values, **fields})


def dialogue(id="000010/0000/00", agent="player_0"):
    """Two decisions in one growing dialogue, the second after a reply that is no action; the other seat is a script."""
    first = chat_ids(("user", "You hold a King.\nCheck or bet?"))
    again = (*first, *byte_ids("bet!"), 2, *byte_ids("\n"), *chat_ids(("user", "No such action. Once more.")))
    late = chat_ids(("user", "You hold a King.\nCheck or bet?"), ("assistant", "bet"), ("user", "Called. And now?"))
    script = made_up_turn(
        "player_1",
        (),
        "call",
        policy=None,
        version=None,
        completion=None,
        observation="They bet.",
        trainable=False,
        action="call",
    )
    return episode(
        id,
        [
            made_up_turn(
                agent, first, "bet!", logprobs=[-0.01, -0.5, -2.0, -6.0], valid=False, error="no such action", penalty=-0.5
            ),
            made_up_turn(agent, again, "bet", attempt=1, logprobs=[-0.01, -1.0, -3.0], reward=1.0),
            script,
            made_up_turn(agent, late, "show", index=1, trainable=False, phase="showdown"),
        ],
        opponents={"player_1": "minimax"},
        messages=(Message("player_1", (agent,), "good luck", 2),),
        outcome={"winner": agent},
    )


def failed(id="000020/0001/00", error="RuntimeError: the table broke"):
    trace = f'Traceback (most recent call last):\n  File "env.py", line 7, in step\n{error}\n'
    return episode(
        id, [made_up_turn("player_0", chat_ids(("user", "Go.")), "p")], status=EpisodeStatus.FAILED, error=trace, rewards={}
    )


@pytest.fixture
def run(tmp_path):
    """One run of six episodes: two of one group, one truncated, one failed."""
    plain = made_up_turn("player_0", chat_ids(("user", "Card Q. p/b?")), "p", observation="Card Q. p/b?", reward=-1.0)
    lost = {"rewards": {"player_0": -1.0, "player_1": 1.0}}
    cut = {"status": EpisodeStatus.TRUNCATED, "final_prompts": {"player_0": chat_ids(("user", "And then?"))}}
    episodes = [
        dialogue(),
        episode("000010/0001/00", [plain], **lost),
        episode("000010/0001/01", [plain]),
        episode("000020/0000/00", [plain], **cut),
        failed(),
        episode("000020/0002/00", []),
    ]
    return write_run(tmp_path / "walk", CONFIG, ROWS, episodes, {"000010/0000/00": [0.25, -1.5, 0.0, 0.0]})


def put(browser, control, value):
    """Sets a control as a user would."""
    node = f"document.querySelector('#{control}')"
    browser.eval(f"{node}.value = {json.dumps(value)}; ['input', 'change'].forEach(e => {node}.dispatchEvent(new Event(e)))")


def listed(browser):
    """The ids in the list."""
    return browser.eval("[...document.querySelectorAll('.row-id')].map(n => n.innerText)")


def shown(browser):
    return browser.text("#episode h2")


def test_the_page_opens_with_state_figures_and_curves(browser, run, tmp_path):
    page = write_page([run], tmp_path / "page.html")
    browser.open(page)
    assert browser.requests() == [page.as_uri()]
    assert browser.eval("document.title") == "walk · OpenTinker"
    glance = browser.text(".summary")
    assert "finished" in glance and "step 20 of 20" in glance and "0.0476" in glance  # 1 / 21
    titles = browser.eval("[...document.querySelectorAll('.grid-of-charts:not(details *) h3')].map(n => n.innerText)")
    assert titles == ["exploitability", "return", "entropy (nats a token)"]
    assert browser.eval("document.querySelectorAll('[data-chart=\"eval/exploitability\"] path.curve').length") == 2
    assert browser.eval("innerWidth >= document.documentElement.scrollWidth")


def test_a_value_is_read_off_a_curve_by_pointer_and_by_key(browser, run, tmp_path):
    browser.open(write_page([run], tmp_path / "page.html"), "#figure=eval/exploitability")
    assert browser.text("h3") == "exploitability"
    browser.hover(".plot svg")
    assert browser.text("#tip").splitlines()[0].startswith("step ")
    browser.eval("document.querySelector('.plot svg').focus()")
    browser.key("End")
    assert "step 20" in browser.text("#tip") and "0.0476" in browser.text("#tip") and "0.0714" in browser.text("#tip")
    browser.key("ArrowLeft")
    assert "step 19" in browser.text("#tip") and "0.05" in browser.text("#tip")
    browser.eval("document.querySelector('.plot svg').blur()")
    browser.click(".legend .key")
    assert browser.eval("document.querySelectorAll('path.curve').length") == 1
    browser.eval("s = document.querySelector('#smoothing'); s.value = 0.9; s.dispatchEvent(new Event('input'))")
    assert browser.eval("document.querySelectorAll('path.raw').length") == 1


def test_an_episode_shows_every_turn_with_tokens_and_what_followed(browser, run, tmp_path):
    browser.open(write_page([run], tmp_path / "page.html"), "#episode=000010/0000/00")
    browser.wait("document.querySelector('.turn')")
    assert shown(browser) == "000010/0000/00"
    first, again, script, last = browser.eval("[...document.querySelectorAll('.turn')].map(n => n.innerText)")
    assert "<|im_start|>user\nYou hold a King.\nCheck or bet?<|im_end|>" in first
    assert "invalid" in first and "no such action" in first and "−0.5" in first and "+0.25" in first
    assert "attempt 2" in again and "Once more." in again and "−1.5" in again and "+1" in again
    assert "as in player_0's last turn" in again
    assert "no policy" in script and "They bet." in script and "call" in script
    assert "not trained on" in last.lower() and "phase showdown" in last and "decision 2" in last
    assert "good luck" in browser.text(".message")
    tokens = browser.eval(
        "[...document.querySelectorAll('.turn')].map(t => [...t.querySelectorAll('.tokens .token')].map(n => n.className))"
    )
    assert tokens[0] == ["token p-0", "token p-1", "token p-3", "token p-5"]
    assert tokens[3] == ["token p-0 untrained"] * 4
    # what the agent had sampled itself is marked where it stands in a later prompt
    assert browser.eval(
        "[...document.querySelectorAll('.turn')[1].querySelectorAll('.sampled-before')].map(n => n.textContent)"
    ) == ["bet!"]


def test_a_token_tells_its_id_and_probability_under_the_pointer_and_by_key(browser, run, tmp_path):
    browser.open(write_page([run], tmp_path / "page.html"), "#episode=000010/0000/00")
    browser.wait("document.querySelector('.tokens')")
    browser.hover(".tokens .token:nth-child(2)")
    told = browser.text("#tip")
    assert '"e"' in told and str(byte_ids("e")[0]) in told and "−0.5" in told and "60.7 %" in told and "mask" in told
    browser.eval("document.querySelector('.tokens .token').focus()")
    assert '"b"' in browser.text("#tip") and "99.0 %" in browser.text("#tip")
    browser.key("ArrowRight")
    assert '"e"' in browser.text("#tip")
    assert shown(browser) == "000010/0000/00"


def test_keys_walk_through_the_episodes(browser, run, tmp_path):
    browser.open(write_page([run], tmp_path / "page.html"), "#episodes")
    # the first one is open from the start
    for key, expected in [
        ("", "10/0000/00"),
        ("j", "10/0001/00"),
        ("ArrowDown", "10/0001/01"),
        ("k", "10/0001/00"),
        ("ArrowUp", "10/0000/00"),
        ("k", "10/0000/00"),
    ]:
        if key:
            browser.key(key)
        browser.wait(
            f"document.querySelector('#episode h2') && document.querySelector('#episode h2').innerText === '0000{expected}'"
        )
    assert browser.eval("location.hash") == "#episode=000010/0000/00"
    assert browser.eval("document.querySelector('#episode-list [aria-selected=true] .row-id').innerText") == "000010/0000/00"
    browser.key("/")
    assert browser.eval("document.activeElement.id") == "filter-text"
    browser.type("#filter-text", "j")  # a letter in a field is a letter
    assert browser.eval("location.hash") == "#episode=000010/0000/00"


def test_clicks_open_an_episode_its_siblings_and_the_list_again(browser, run, tmp_path):
    browser.open(write_page([run], tmp_path / "page.html"))
    browser.click("[data-tab=episodes]")
    browser.wait("document.querySelector('#row-1')")
    browser.click("#row-1")
    browser.wait("document.querySelector('.siblings')")
    assert shown(browser) == "000010/0001/00"
    assert browser.eval("[...document.querySelectorAll('.siblings a')].map(n => n.innerText)") == ["−1 / +1", "+1 / −1"]
    browser.click(".siblings a:nth-child(2)")
    browser.wait("document.querySelector('#episode h2').innerText === '000010/0001/01'")
    browser.eval("history.back()")
    browser.wait("document.querySelector('#episode h2').innerText === '000010/0001/00'")


@pytest.mark.parametrize(
    ("control", "value", "left"),
    [
        ("step", "20", ["000020/0000/00", "000020/0001/00", "000020/0002/00"]),
        ("status", "truncated", ["000020/0000/00"]),
        ("note", "winner: player_0", ["000010/0000/00"]),
        ("low", "0.5", ["000010/0000/00", "000010/0001/00", "000010/0001/01", "000020/0000/00", "000020/0002/00"]),
        ("high", "-0.5", ["000010/0000/00", "000010/0001/00", "000010/0001/01", "000020/0000/00", "000020/0002/00"]),
        ("text", "cArD Q.", ["000010/0001/00", "000010/0001/01", "000020/0000/00"]),
        ("text", "they bet", ["000010/0000/00"]),
        ("text", "good luck", ["000010/0000/00"]),
        ("text", "table broke", ["000020/0001/00"]),
        ("text", "0002/00", ["000020/0002/00"]),
        ("text", "nowhere at all", []),
    ],
)
def test_filters_leave_what_fits(browser, run, tmp_path, control, value, left):
    browser.open(write_page([run], tmp_path / "page.html"), "#episodes")
    assert browser.text("#episode-count") == "6 episodes"
    put(browser, f"filter-{control}", value)
    browser.wait(f"document.querySelector('#episode-count').innerText.startsWith('{len(left)} of 6')")
    assert listed(browser) == left


def test_evaluations_and_games_of_a_human_stand_beside_training(browser, run, tmp_path):
    for number, name in enumerate(["evaluations/step-000020-a.jsonl", "play/player_0-1.jsonl", "play/player_0-2.jsonl"]):
        (run / name).parent.mkdir(exist_ok=True)
        game = episode("000000/0000/00", [made_up_turn("player_0", chat_ids(("user", "Go.")), "pbx"[number])])
        (run / name).write_text(json.dumps(episode_to_json(game)) + "\n")
    page = write_page([run], tmp_path / "page.html")
    browser.open(page, "#episode=000000/0000/00&file=play/player_0-2.jsonl")
    browser.wait("document.querySelector('.turn')")
    assert browser.text(".tokens") == "x" and "no step" in browser.text(".facts")
    browser.key("k")
    browser.wait("document.querySelector('.tokens').innerText === 'b'")
    assert browser.eval("location.hash") == "#episode=000000/0000/00&file=play/player_0-1.jsonl"
    put(browser, "filter-kind", "evaluation")
    assert browser.text(".row-more").startswith("evaluation") and browser.text("#episode-count") == "1 of 9 episodes"
    put(browser, "filter-kind", "play/player_0-1.jsonl")
    assert browser.text(".row-more").startswith("play") and browser.text("#episode-count") == "1 of 9 episodes"
    put(browser, "filter-kind", "")
    put(browser, "filter-step", "20")
    assert browser.text("#episode-count") == "4 of 9 episodes"


def test_evaluations_are_a_table_with_intervals(browser, run, tmp_path):
    rate = {"count": 13, "rate": 0.65, "low": 0.433, "high": 0.819}
    tally = {"games": 20, "win": rate, "return": {"mean": 0.25, "low": -0.5, "high": 1.0}, "invalid_rate": 0.048}
    result = {
        "step": 20,
        "weights": "ema",
        "opponents": {EVIL: {"overall": {**tally, "games": 40}, "seats": {"a": tally, "b": tally}}},
    }
    (run / "evaluations").mkdir()
    (run / "evaluations" / "step-000020-ema-20260101T000000.json").write_text(json.dumps(result))
    browser.open(write_page([run], tmp_path / "page.html"))
    head, first, *rest = browser.eval(
        "[...document.querySelectorAll('.evaluations tr')].map(n => [...n.cells].map(c => c.innerText))"
    )
    assert head == ["against", "seat", "step", "games", "wins", "return", "invalid"]
    assert first == [EVIL, "all seats", "20 ema", "40", "65.0 %\n43.3 % to 81.9 %", "0.25\n−0.5 to 1", "4.8 %"]
    assert [row[1] for row in rest] == ["a", "b"]


def test_agent_and_return_filter_together_and_the_best_come_first(browser, run, tmp_path):
    browser.open(write_page([run], tmp_path / "page.html"), "#episodes")
    for control, value in (("filter-agent", "player_0"), ("filter-high", "-1"), ("sort", "best")):
        put(browser, control, value)
    assert listed(browser) == ["000010/0001/00"]
    put(browser, "filter-high", "")
    assert listed(browser)[-1] == "000010/0001/00"
    browser.click("#filter-invalid")
    assert listed(browser) == ["000010/0000/00"]


def test_a_truncated_episode_shows_what_would_have_come_next(browser, run, tmp_path):
    browser.open(write_page([run], tmp_path / "page.html"), "#episode=000020/0000/00")
    browser.wait("document.querySelector('.story > details')")
    browser.click(".story > details summary")
    assert "And then?" in browser.text(".story > details")
    assert "truncated" in browser.text(".episode-title")


def test_failures_tell_the_error_of_the_run_and_of_its_episodes(browser, run, tmp_path):
    status = {
        "state": "failed",
        "step": 20,
        "steps": 20,
        "error": "RolloutFailed: 1 of 2",
        "traceback": "Traceback: deep",
        "updated": "2026-01-01",
    }
    (run / "status.json").write_text(json.dumps(status))
    browser.open(write_page([run], tmp_path / "page.html"))
    assert "the run failed. RolloutFailed: 1 of 2" in browser.text("#view-curves")
    browser.click("[data-tab=failures]")
    browser.wait("!document.querySelector('#view-failures').hidden")
    assert browser.text("[data-tab=failures] .pill") == "2"
    failures = browser.text("#view-failures")
    assert "Traceback: deep" in failures and "RuntimeError: the table broke" in failures
    browser.click("#view-failures details summary")
    browser.wait("document.querySelector('#view-failures details pre').innerText.includes('line 7, in step')")
    browser.click("#view-failures article a")
    browser.wait("document.querySelector('#episode .traceback')")
    assert shown(browser) == "000020/0001/00"


def test_several_runs_lie_over_each_other_and_their_differences_are_marked(browser, run, tmp_path):
    other = write_run(
        tmp_path / "other",
        {**CONFIG, "name": "other", "train": {"steps": 20, "optim": {"lr": 0.1}}},
        ROWS[:10],
        [dialogue(), failed("000010/0001/00")],
    )
    page = write_page([run, other], tmp_path / "page.html")
    browser.open(page)
    assert [line.split("\t")[0].strip() for line in browser.text(".summary-table tbody").splitlines()][0] == "walk"
    assert "other: ema" in browser.text("[data-chart='eval/exploitability']")
    colours = browser.eval(
        "[...document.querySelectorAll('[data-chart=\"eval/exploitability\"] path.curve')].map(n => n.style.stroke)"
    )
    assert len(colours) == 4 and len(set(colours)) == 2
    browser.open(page, "#settings")
    marked = browser.eval("[...document.querySelectorAll('.setting.differs .key-name')].map(n => n.innerText)")
    assert marked == ["name", "lr"]
    assert "walk 0.001" in browser.text("#setting-tree") and "other 0.1" in browser.text("#setting-tree")
    browser.click("#only-differences")
    assert browser.eval("[...document.querySelectorAll('.setting')].filter(n => n.offsetParent).length") == 2
    browser.open(page, "#episode=000010/0000/00&run=other")
    browser.wait("document.querySelector('.turn')")
    assert "other" in browser.text(".facts")
    assert browser.eval("document.querySelector('#episode').dataset.row") == "6"


def test_settings_are_a_tree(browser, run, tmp_path):
    browser.open(write_page([run], tmp_path / "page.html"), "#settings")
    text = browser.text("#setting-tree")
    assert "optim" in text and "lr" in text and "0.001" in text and "tiny" in text
    browser.click("#setting-tree details summary")
    assert "tiny" not in browser.text("#setting-tree")


@pytest.fixture
def hostile(tmp_path):
    """Every text of the run tries to be more than text."""
    nasty = EVIL + ODD
    turn = made_up_turn(
        nasty, chat_ids(("user", nasty)), nasty, role=nasty, observation=nasty, action=nasty, error=nasty, phase=nasty
    )
    ends = Completion((70, 71), (float("-inf"), float("nan")), nasty, FinishReason.EOS, nasty, 0)
    strange = made_up_turn(
        nasty, (5, 4_000_000), nasty, policy=nasty, version=-1, completion=ends, reward=float("nan"), action={"a": [nasty]}
    )
    config = {"name": nasty.replace("\ud800", ""), nasty: {"__proto__": {"x": EVIL}, "constructor": EVIL}}
    story = episode(
        "000010/0000/00",
        [turn, strange],
        env=nasty,
        roles={nasty: nasty, "__proto__": "constructor"},
        rewards={nasty: 1.0, "__proto__": float("inf")},
        messages=(Message(nasty, (nasty,), nasty, 0),),
        final_prompts={nasty: chat_ids(("user", nasty))},
        outcome={nasty: nasty, "__proto__": EVIL},
        status=EpisodeStatus.FAILED,
        error=nasty,
    )
    rows = [{"step": step, f"rollout/{EVIL}/return_mean": step, f"{EVIL}/x/__proto__": 1.0} for step in range(3)]
    run = write_run(tmp_path / "hostile", config, rows, [])
    (run / "episodes" / "step-000010.jsonl").write_text(json.dumps(episode_to_json(story)) + "\n")
    write_tokenizer(run / "checkpoints" / "step-000001" / "policies" / "learner" / "weights" / "tokenizer.json")
    status = {"state": "failed", "step": 2, "steps": 3, "error": nasty, "traceback": nasty, "updated": EVIL}
    (run / "status.json").write_text(json.dumps(status))
    return run


@pytest.mark.parametrize(
    "hash", ["", "#figure=rollout/return_mean", "#episode=000010/0000/00", "#failures", "#settings", "#episodes"]
)
def test_hostile_text_is_shown_and_never_obeyed(browser, hostile, tmp_path, hash):
    page = write_page([hostile], tmp_path / "page.html")
    browser.open(page, hash)
    if "episode=" in hash:
        browser.wait("document.querySelector('.turn')")
        text = browser.text("#episode")
        for seen in (
            EVIL,
            "U+0000",
            "U+202E",
            "U+D800",
            "U+E0041",
            "caf\u00e9",
            "\U0001f469\u200d\U0001f680",
            "4000000",
            "nan",
        ):
            assert seen in text, seen
        assert "\u202e" not in text and "\0" not in text
    if hash == "#failures":
        browser.click("#view-failures details summary")
    browser.eval("new Promise(done => setTimeout(done, 50))")
    assert "owned" not in browser.eval("document.title").replace(EVIL, "")
    assert (
        browser.eval("document.querySelectorAll('img, script:not([type]), iframe, object, a[href^=\"javascript\"]').length")
        == 1
    )
    assert browser.eval("({}).x") is None
    assert browser.requests() == [page.as_uri() + hash] or browser.requests() == [page.as_uri()]


def test_the_policy_of_the_page_forbids_every_request_and_any_other_script(browser, run, tmp_path):
    browser.open(write_page([run], tmp_path / "page.html"))
    assert browser.eval("fetch('https://example.org').then(() => 'got it', () => 'refused')") == "refused"
    browser.eval("s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)")
    browser.eval("i = document.createElement('img'); i.src = 'https://example.org/a.png'; document.body.append(i)")
    browser.eval("new Promise(done => setTimeout(done, 50))")
    assert browser.eval("window.ran") is None
    blocked = browser.complaints()
    assert len(blocked) >= 3 and all("Content Security Policy" in text or "violates" in text for text in blocked)
    browser.events.clear()


def test_an_address_that_leads_nowhere_says_so(browser, run, tmp_path):
    page = write_page([run], tmp_path / "page.html")
    browser.open(page, "#episode=000099/0000/00")
    assert "no episode 000099/0000/00" in browser.text("#episode")
    for odd in ("#episode=%E0%A4%A", "#row=99999", "#row=x", "#figure=nope", "#%%%", "#episode=000010/0000/00&run=nope"):
        browser.open(page, odd)


@pytest.mark.parametrize("place", ["", "#episodes", "#episode=000010/0000/00", "#failures", "#settings"])
def test_nothing_is_wider_than_a_telephone(browser, run, tmp_path, place):
    browser.size(400, 800)
    browser.open(write_page([run], tmp_path / "page.html"), place)
    if "episode=" in place:
        browser.wait("document.querySelector('.turn')")
        assert browser.eval("document.querySelector('.side').offsetParent === null")  # the list makes room
        browser.click(".back")
        browser.wait("document.querySelector('.side').offsetParent !== null")
    nodes = "[...document.querySelectorAll('body, main, section, article, pre, h2, .card')]"
    wide = ".filter(n => n.getBoundingClientRect().right > 401).map(n => n.outerHTML.slice(0, 80))"
    assert browser.eval(nodes + wide) == []


CONTRAST = """
(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll('body *')) {
    if (!node.offsetParent || ![...node.childNodes].some(c => c.nodeType === 3 && c.textContent.trim())) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(`${node.className}: ${node.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return bad;
})()
"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_light_and_in_the_dark(browser, run, tmp_path, dark):
    browser.dark(dark)
    page = write_page([run], tmp_path / "page.html")
    for place in ("", "#episode=000010/0000/00", "#failures", "#settings"):
        browser.open(page, place)
        if "episode=" in place:
            browser.wait("document.querySelector('.turn')")
        assert browser.eval(CONTRAST) == []
    assert browser.eval("getComputedStyle(document.body).backgroundColor") == (
        "rgb(18, 22, 29)" if dark else "rgb(246, 247, 249)"
    )


def test_every_control_has_a_name(browser, run, tmp_path):
    browser.open(write_page([run], tmp_path / "page.html"), "#episodes")
    unnamed = """[...document.querySelectorAll('input, select, button, [role=listbox], [role=img]')].filter(n =>
        !(n.labels && n.labels.length) && !n.getAttribute('aria-label') && !n.innerText.trim()).map(n => n.outerHTML)"""
    assert browser.eval(unnamed) == []
    assert browser.eval("document.documentElement.lang") == "en"


def test_a_run_with_nothing_yet_says_so(browser, tmp_path):
    run = write_run(tmp_path / "fresh", CONFIG, [], [])
    page = write_page([run], tmp_path / "page.html")
    browser.open(page)
    assert "No figures yet" in browser.text("main") and "empty" in browser.text(".summary")
    browser.open(page, "#episodes")
    assert "no episodes were recorded" in browser.text(".side-notes")
    browser.open(page, "#failures")
    assert "Nothing failed" in browser.text("main")


def test_what_is_left_out_is_told(browser, run, tmp_path):
    with (run / "episodes" / "step-000010.jsonl").open("a") as file:
        file.write('{"id": "000010/0009/00", "turns": [')
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "rollout/')
    page = write_page([run], tmp_path / "page.html", max_episodes=3)
    browser.open(page)
    assert "1 line of metrics.jsonl could not be read and is left out" in browser.text("main")
    browser.open(page, "#episodes")
    notes = browser.text(".side-notes")
    assert "of 7 recorded episodes are in this page" in notes


def test_without_a_tokenizer_ids_stand_for_text(browser, run, tmp_path):
    next(run.glob("checkpoints/**/tokenizer.json")).unlink()
    browser.open(write_page([run], tmp_path / "page.html"), "#episode=000010/0001/00")
    browser.wait("document.querySelector('.turn')")
    text = browser.text(".turn")
    assert "⟨1⟩" in text and "No tokenizer" in text and "Card Q. p/b?" in text


def test_characters_of_several_tokens_and_long_episodes(browser, tmp_path):
    grin = made_up_turn("player_0", chat_ids(("user", "Smile.")), "a\U0001f600\n", index=0)
    many = [made_up_turn("player_0", chat_ids(("user", f"Turn {number}.")), "p", index=number) for number in range(90)]
    run = write_run(tmp_path / "long", CONFIG, ROWS, [episode("000010/0000/00", [grin, *many])])
    browser.open(write_page([run], tmp_path / "page.html"), "#episode=000010/0000/00")
    browser.wait("document.querySelector('.turn')")
    tokens = browser.eval("[...document.querySelector('.tokens').children].map(n => n.textContent)")
    assert tokens == ["a", "·", "·", "·", "\U0001f600", "↵\n"]
    assert browser.eval("document.querySelectorAll('.turn').length") == 40
    browser.click("button.more")
    browser.click("button.more")
    assert browser.eval("document.querySelectorAll('.turn').length") == 91
    assert "Turn 89." in browser.eval("document.querySelector('.turn:last-of-type').textContent")


def running(folder):
    """Command lines of processes that work in a folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            line = file.read_bytes().decode(errors="replace")
            if str(folder) in line:
                found.append(line)
    return found


def test_a_browser_that_is_closed_leaves_nothing_behind(browser):
    other = type(browser)(browser.path)
    assert running(other.folder)
    other.close()
    deadline = time.monotonic() + 20
    while running(other.folder):
        assert time.monotonic() < deadline, running(other.folder)
        time.sleep(0.05)
    assert not other.folder.exists()


@pytest.mark.slow
@pytest.mark.alone
def test_ten_thousand_episodes_stay_usable(browser, tmp_path):
    run = write_run(tmp_path / "big", CONFIG, ROWS, made_up_games(10_000))
    begun = time.process_time()
    page = write_page([run], tmp_path / "page.html")
    assert time.process_time() - begun < 15
    assert page.stat().st_size < 4_000_000
    browser.send("Performance.enable")

    def spent():
        """Seconds of a processor that the page has used so far."""
        return next(m["value"] for m in browser.send("Performance.getMetrics")["metrics"] if m["name"] == "ProcessTime")

    before = spent()
    browser.open(page, "#episodes")
    assert spent() - before < 3
    assert browser.text("#episode-count") == "10,000 episodes"
    assert browser.eval("document.querySelectorAll('#episode-list .row').length") < 40
    browser.eval("document.querySelector('#episode-list').scrollTop = 1e9")
    browser.wait("[...document.querySelectorAll('.row-id')].some(n => n.innerText === '000500/0199/00')")
    before = spent()
    browser.open(page, "#episode=000250/0100/00")
    browser.wait("document.querySelector('.turn')")
    browser.key("j")
    browser.wait("document.querySelector('#episode h2').innerText === '000250/0101/00'")
    browser.type("#filter-text", "Card K. Moves pb.")
    browser.wait("document.querySelector('#episode-count').innerText.includes(' of 10,000')", 60)
    assert spent() - before < 6
