import json

from tokenizers import Tokenizer

from opentinker.report.record import episode_from_json
from opentinker.testing.runs import byte_ids, chat_ids, made_up_games, write_run, write_tokenizer


def test_the_tokenizer_goes_with_the_ids(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "Card K. \u00e9\n"
    assert tokenizer.encode(text).ids == list(byte_ids(text))
    chat = tokenizer.decode(list(chat_ids(("user", "p/b?"))), skip_special_tokens=False)
    assert chat == "<|im_start|>user\np/b?<|im_end|>\n<|im_start|>assistant\n"


def test_games_repeat_by_their_seed_and_come_back_from_the_files(tmp_path):
    games = list(made_up_games(300))
    assert games == list(made_up_games(300)) != list(made_up_games(300, seed=1))
    run = write_run(tmp_path / "run", {"name": "a"}, [{"step": 1}], games)
    files = sorted((run / "episodes").iterdir())
    assert [file.name for file in files] == ["step-000010.jsonl", "step-000020.jsonl"]
    back = [episode_from_json(json.loads(line)) for file in files for line in file.read_text().splitlines()]
    assert back == games
    assert len({game.id for game in games}) == 300
    assert {len(game.turns) for game in games} == {2, 3, 5, 6, 7, 8, 9}
