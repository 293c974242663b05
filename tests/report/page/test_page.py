"""The page as a file: what is in it, without a browser."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib import resources

import pytest

import opentinker.report.page as page_module
from opentinker.errors import ConfigError
from opentinker.report.page import SCRIPTS, write_page
from opentinker.testing.runs import made_up_games, write_run

CONFIG = {"name": "kuhn", "train": {"steps": 2}}
ROWS = [
    {"step": 0, "a/b/c": 1.0},
    {"step": 1, "a/b/c": None, "odd": "text", "big": 1e300},
    {"step": 2, "a/b/c": 0.123456789},
]


class Reader(HTMLParser):
    """Scripts by id (the page's own under its empty id), styles, and the policy."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.style, self.policy, self.tag = {}, "", "", ("", "")
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tag = (tag, attributes.get("id", ""))
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        assert not {"src", "onclick", "onload", "style"} & set(attributes)
        if "href" in attributes:
            assert attributes["href"].startswith(("#", "data:"))

    def handle_endtag(self, tag):
        self.tag = ("", "")

    def handle_data(self, data):
        if self.tag[0] == "script":
            self.scripts[self.tag[1]] = self.scripts.get(self.tag[1], "") + data
        elif self.tag[0] == "style":
            self.style += data

    def data(self, id="data"):
        return json.loads(gzip.decompress(base64.b64decode(self.scripts[id])))


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "kuhn", CONFIG, ROWS, made_up_games(40))


def test_the_policy_names_exactly_the_pages_own_script_and_style(run, tmp_path):
    page = Reader(write_page([run], tmp_path / "a" / "b" / "page.html").read_text())

    def digest(text):
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    rules = dict(rule.split(" ", 1) for rule in page.policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest(page.scripts[''])}'"
    assert rules["style-src"] == f"'sha256-{digest(page.style)}'"
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}


def test_the_page_holds_figures_settings_and_every_episode(run, tmp_path):
    page = Reader(write_page([run], tmp_path / "page.html").read_text())
    data = page.data()
    (held,) = data["runs"]
    assert held["config"] == CONFIG and held["episodes"] == 40 and held["at"] == [0, 1, 2]
    assert held["figures"] == {"a/b/c": [1.0, None, 0.123457]}
    assert len(data["index"]["id"]) == 40 == len(page.data("chunk-0")["e"])
    assert list(held["policies"]) == ["learner"] and len(held["vocabularies"][0]["ids"]) > 20


def test_the_same_run_gives_the_same_page(run, tmp_path):
    first = write_page([run], tmp_path / "1.html").read_bytes()
    assert write_page([run], tmp_path / "2.html").read_bytes() == first


def test_a_limit_is_kept_and_told(run, tmp_path):
    data = Reader(write_page([run], tmp_path / "page.html", max_episodes=10).read_text()).data()
    assert len(data["index"]["id"]) == 10 and data["runs"][0]["episodes"] == 40


@pytest.mark.parametrize("name", ["</title><script>alert(1)</script>", "%%DATA%%", "%%SCRIPT%%", "&amp;", "a\u202eb\0"])
def test_a_name_is_a_name(tmp_path, name):
    run = write_run(tmp_path / "run", {"name": name}, [], [])
    text = write_page([run], tmp_path / "page.html").read_text()
    page = Reader(text)
    assert set(page.scripts) == {"data", ""} and page.data()["runs"][0]["name"] == name
    assert "\u202e" not in text and "\0" not in text


def test_what_cannot_be_json_becomes_text(tmp_path):
    run = write_run(tmp_path / "run", {}, [{"step": 0, "a": 10**400, "b": True}], [])
    (run / "config.yaml").write_text("a: .nan\n1: 2\nwhen: 2020-01-01\n")
    (held,) = Reader(write_page([run], tmp_path / "page.html").read_text()).data()["runs"]
    assert held["config"] == {"a": "nan", "1": 2, "when": "2020-01-01"}
    assert held["figures"] == {}


def test_a_page_that_fails_half_way_leaves_the_old_one(run, tmp_path, monkeypatch):
    file = tmp_path / "out" / "page.html"
    write_page([run], file)
    before = file.read_bytes()

    def full(*args):
        raise OSError("no space left")

    monkeypatch.setattr(page_module, "_packed", full)
    with pytest.raises(OSError, match="no space"):
        write_page([run], file)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_that_is_no_run_writes_nothing(run, tmp_path):
    with pytest.raises(ConfigError, match="is no run"):
        write_page([run, tmp_path], tmp_path / "out" / "page.html")
    assert not (tmp_path / "out").exists()


def test_the_assets_ask_nobody_for_anything_and_make_no_markup_of_data():
    folder = resources.files("opentinker.report.page")
    names = [entry.name for entry in folder.iterdir() if entry.name.endswith((".js", ".css", ".html"))]
    assert set(names) == {"page.html", "page.css", *SCRIPTS}
    for name in names:
        text = folder.joinpath(name).read_text()
        assert set(re.findall(r"https?://[^'\"\s]+", text)) <= {"http://www.w3.org/2000/svg"}
        if name.endswith(".js"):
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|fetch\(|XMLHttp|import\(", text
            )
            assert "</script" not in text.lower() and "<!--" not in text
            assert text.count("\n") < 400
        if name.endswith(".css"):
            assert "url(" not in text and "@import" not in text
