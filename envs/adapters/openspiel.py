"""`openspiel/NAME`: the games of DeepMind's OpenSpiel, https://github.com/google-deepmind/open_spiel.

Sequential games are `pettingzoo.AECEnv`s, games of simultaneous moves `pettingzoo.ParallelEnv`s; those that mix both are
played turn by turn, nobody seeing what the others chose at the same time (OpenSpiel's own conversion). Players see
OpenSpiel's text for them, its information state where the game has one, and answer with its names of actions. Mean-field
games are refused: what acts there is a population.
"""

from __future__ import annotations

import difflib
import importlib
import random
from collections.abc import Mapping
from typing import Any, Literal

from opentinker.envs.adapters.openspiel_envs import OpenSpielAEC, OpenSpielParallel
from opentinker.envs.adapters.openspiel_match import Match, Text
from opentinker.errors import ConfigError, MissingExtra, message_text, value_text

_GAMES: dict[tuple[str, str], Any] = {}
_GAMES_TRIED, _MOVES_TRIED = 3, 100
_SEED = "rng_seed"
"""The parameter of games that draw from a generator of their own."""


def names() -> list[str]:
    """All registered games, those included that need parameters or are refused; none without OpenSpiel."""
    try:
        return sorted(_types())
    except MissingExtra:
        return []


def known(name: str) -> bool:
    """Whether OpenSpiel has the game.

    Raises:
        MissingExtra: OpenSpiel is not installed; `make` raises it as well.
    """
    return name in _types()


def canonical(name: str) -> str:
    """The name itself: OpenSpiel's games have one spelling."""
    return name


def make(
    name: str, *, api: Literal["aec", "parallel"] | None = None, observation: Text | None = None, **parameters: Any
) -> OpenSpielAEC | OpenSpielParallel:
    """A game as a PettingZoo environment of `player_0`, `player_1`, ...

    Args:
        name: OpenSpiel's short name, such as `leduc_poker`.
        api: None takes `parallel` for a game of simultaneous moves alone, else `aec`. Every game can be had as `aec`.
        observation: which of OpenSpiel's texts players see, `information_state` (everything a player has seen and done),
            `observation` (the present) or, of a game without secrets, `state`; None: the first of them that the game has.
        parameters: OpenSpiel's, such as `players=3`. A game inside a game is a mapping with its `name`, or a text as
            OpenSpiel writes it: `goofspiel(players=3)`.

    Raises:
        ConfigError: the game is refused, has no such text or api, or does not take these parameters.
    """
    spiel = _spiel()
    parameters = _checked(name, parameters)
    game = _shared(name, parameters)
    kind = game.get_type()
    if kind.dynamics == spiel.GameType.Dynamics.MEAN_FIELD:
        raise ConfigError(f"openspiel/{name} is a mean-field game: a population acts in it, no players who could be seated")
    if not game.num_distinct_actions():
        raise ConfigError(f"openspiel/{name} has no list of actions: OpenSpiel takes and gives them as structures only")
    simultaneous = kind.dynamics == spiel.GameType.Dynamics.SIMULTANEOUS
    if api is None:
        api = "parallel" if simultaneous and not _mixes(name, parameters) else "aec"
    if api not in ("aec", "parallel") or (api == "parallel" and not simultaneous):
        offered = "aec, parallel" if simultaneous else "aec"
        raise ConfigError(f"openspiel/{name} has no api {api!r}; it has: {offered}")
    by_turns = simultaneous and api == "aec"

    def load(seed: int) -> Any:
        loaded = _loaded(name, _seeded(name, parameters, seed)) if draws else game
        return spiel.convert_to_turn_based(loaded) if by_turns else loaded

    draws = _seeded(name, parameters, 0) != parameters
    if kind.chance_mode == spiel.GameType.ChanceMode.SAMPLED_STOCHASTIC and not draws:
        raise ConfigError(f"openspiel/{name} draws from a generator that nobody can seed: no episode could be replayed")
    match = Match(load, draws, _text(name, kind, observation, by_turns))
    return OpenSpielParallel(name, match) if api == "parallel" else OpenSpielAEC(name, match)


def _text(name: str, kind: Any, wanted: Text | None, by_turns: bool) -> Text:
    offered: list[Text] = []
    if kind.provides_information_state_string:
        offered.append("information_state")
    if kind.provides_observation_string:
        offered.append("observation")
    if kind.information == _spiel().GameType.Information.PERFECT_INFORMATION and not by_turns:
        offered.append("state")
    if not offered:
        raise ConfigError(f"openspiel/{name} has no text for its players, neither an information state nor an observation")
    if wanted is not None and wanted not in offered:
        raise ConfigError(f"openspiel/{name} has no observation {wanted!r}; it has: {', '.join(offered)}")
    return offered[0] if wanted is None else wanted


def _checked(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a game with the games in them as mappings; only their names are checked here."""
    types = _types()
    if name not in types:
        raise ConfigError(f"OpenSpiel has no game {name!r}{_near(name, types)}")
    specified: Mapping[str, Any] = types[name].parameter_specification
    parameters = dict(given)
    for key, value in given.items():
        if key not in specified:
            takes = f"it takes {', '.join(specified)}" if specified else "it takes none"
            raise ConfigError(f"openspiel/{name} has no parameter {key!r}{_near(key, specified)}; {takes}")
        if key == _SEED:
            raise ConfigError(f"openspiel/{name}: leave out {_SEED}={value_text(value)}; the seed of `reset` decides chance")
        least = specified[key]
        if type(least) is int and least > 0 and type(value) is int and value < 1:  # OpenSpiel crashes on boards without rows
            raise ConfigError(f"openspiel/{name}: {key} must be 1 or more (given: {value}; by itself it is {least})")
        if specified[key] == {}:  # how OpenSpiel says that it is a game
            parameters[key] = _game_in(f"openspiel/{name}: {key}", value)
    return parameters


def _game_in(where: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = _spiel().game_parameters_from_string(value)
        except RuntimeError as error:
            why = message_text(error)
            raise ConfigError(f"{where}: {value_text(value)} is no game as OpenSpiel writes one: {why}") from error
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        form = "goofspiel(players=3) or {name: goofspiel, players: 3}"
        raise ConfigError(f"{where} must be a game in the form {form}, given: {value_text(value)}")
    rest = {key: inner for key, inner in value.items() if key != "name"}
    return {"name": value["name"], **_checked(value["name"], rest)}


def _seeded(name: str, parameters: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The parameters with a seed wherever a game takes one, those in it included."""
    seeded = {
        key: {"name": value["name"], **_seeded(value["name"], {k: v for k, v in value.items() if k != "name"}, seed)}
        if isinstance(value, dict)
        else value
        for key, value in parameters.items()
    }
    return {**seeded, _SEED: seed} if _SEED in _types()[name].parameter_specification else seeded


def _mixes(name: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a game that OpenSpiel calls simultaneous has turns of single players too: only random play can tell."""
    game, rng = _shared(name, parameters), random.Random(0)
    for _ in range(_GAMES_TRIED):
        state = game.new_initial_state()
        for _ in range(_MOVES_TRIED):
            if state.is_terminal():
                break
            if state.is_chance_node():
                state.apply_action(rng.choice(state.chance_outcomes())[0])
            elif state.is_simultaneous_node():
                state.apply_actions([rng.choice(state.legal_actions(player) or [0]) for player in range(game.num_players())])
            else:
                return True
    return False


def _shared(name: str, parameters: Mapping[str, Any]) -> Any:
    """A game's rules, loaded once for all environments: some take seconds. Matches change nothing in them."""
    key = name, repr(sorted(parameters.items()))
    if key not in _GAMES:
        _GAMES[key] = _loaded(name, parameters, tried=bool(parameters))
    return _GAMES[key]


def _loaded(name: str, parameters: Mapping[str, Any], tried: bool = False) -> Any:
    spiel, kind = _spiel(), _types()[name]
    takes = ", ".join(kind.parameter_specification)
    if not parameters and not kind.default_loadable:
        raise ConfigError(f"openspiel/{name} cannot be made without parameters; it takes {takes}")
    try:
        game = spiel.load_game(name, dict(parameters))
        if tried:  # some parameters are looked at no earlier; a game with a generator of its own draws from it
            game.new_initial_state()
        return game
    except (spiel.SpielError, RuntimeError, TypeError, IndexError) as error:
        given, why = value_text(dict(parameters)), " ".join(message_text(error).split())
        raise ConfigError(f"openspiel/{name} cannot be made with {given}: {why}; it takes {takes}") from error


def _near(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _types() -> dict[str, Any]:
    return {kind.short_name: kind for kind in _spiel().registered_games()}


def _spiel() -> Any:
    try:
        importlib.import_module("open_spiel.python.games")  # registers those written in Python
        return importlib.import_module("pyspiel")
    except ModuleNotFoundError as error:
        raise MissingExtra("openspiel/…", "openspiel") from error
