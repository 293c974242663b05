"""Figures of a step, from its episodes: flat keys `area/who/figure`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from opentinker.types import AgentID, Episode, EpisodeStatus, FinishReason, Group, Turn

Figures = dict[str, float]


def rollout_figures(groups: Sequence[Group]) -> Figures:
    """Figures per role and policy, and of the step as a whole.

    Per role (its `figure_name`): `return_mean`, `win_rate`, `draw_rate`, `loss_rate` (games with several players; a forfeit
    is a loss, else the sign of the player's return minus the mean of the others' counts), `turns_mean`, `invalid_rate`
    (attempts), `penalty_mean`.
    Per policy: `entropy` (minus the mean log-probability of its sampled tokens, nats), `reply_tokens_mean`,
    `length_rate` (replies cut by max_tokens). As a whole: `episodes`, `failed`, `truncated`, `turns_mean`, `tokens`.
    """
    episodes = [episode for group in groups for episode in group.episodes]
    sound = [episode for episode in episodes if episode.status is not EpisodeStatus.FAILED]
    figures: Figures = {
        "rollout/all/episodes": len(episodes),
        "rollout/all/failed": len(episodes) - len(sound),
        "rollout/all/truncated": sum(episode.status is EpisodeStatus.TRUNCATED for episode in sound),
        "rollout/all/forfeited": sum("forfeit" in episode.outcome for episode in sound),
        "rollout/all/turns_mean": _mean([len(episode.turns) for episode in sound]),
        "rollout/all/tokens": sum(len(turn.completion.token_ids) for turn in _turns(sound) if turn.completion),
    }
    for role, seats in _by_role(sound).items():
        figures |= _role_figures(f"rollout/{figure_name(role)}", seats)
    by_policy: defaultdict[str, list[Turn]] = defaultdict(list)
    for turn in _turns(sound):
        if turn.policy is not None and turn.completion is not None:
            by_policy[turn.policy].append(turn)
    for policy, turns in by_policy.items():
        figures |= _policy_figures(f"rollout/{policy}", turns)
    return figures


def figure_name(role: str) -> str:
    """A role as the middle of a key `area/who/figure`; different roles have different names.

    Roles without "/" and "%" are their own names. Agents may get their names only while a game runs, and what these hold is
    the world's affair: "/" becomes %2F and "%" %25 as in an address, and `all`, which stands for a whole step, `%all`.
    """
    if role in ("all", ""):
        return f"%{role}"
    return role.replace("%", "%25").replace("/", "%2F")


def _turns(episodes: Iterable[Episode]) -> Iterable[Turn]:
    return (turn for episode in episodes for turn in episode.turns)


def _by_role(episodes: Iterable[Episode]) -> dict[str, list[tuple[AgentID, Episode]]]:
    seats: defaultdict[str, list[tuple[AgentID, Episode]]] = defaultdict(list)
    for episode in episodes:
        for agent, role in episode.roles.items():
            seats[role].append((agent, episode))
    return dict(sorted(seats.items()))


def _role_figures(prefix: str, seats: Sequence[tuple[AgentID, Episode]]) -> Figures:
    returns = [episode.rewards.get(agent, 0.0) for agent, episode in seats]
    own = [[turn for turn in episode.turns if turn.agent == agent] for agent, episode in seats]
    attempts = [turn for turns in own for turn in turns]
    figures = {
        f"{prefix}/return_mean": _mean(returns),
        f"{prefix}/turns_mean": _mean([len({turn.index for turn in turns}) for turns in own]),
        f"{prefix}/invalid_rate": _mean([not turn.valid for turn in attempts]),
        f"{prefix}/penalty_mean": _mean([sum(turn.penalty for turn in turns) for turns in own]),
    }
    margins = [_margin(agent, episode) for agent, episode in seats if len(episode.roles) > 1]
    if margins:
        figures[f"{prefix}/win_rate"] = _mean([margin > 0 for margin in margins])
        figures[f"{prefix}/draw_rate"] = _mean([margin == 0 for margin in margins])
        figures[f"{prefix}/loss_rate"] = _mean([margin < 0 for margin in margins])
    return figures


def _margin(agent: AgentID, episode: Episode) -> float:
    if "forfeit" in episode.outcome:  # whoever leaves has lost, whatever the world had paid by then
        return -1.0 if episode.outcome["forfeit"] == agent else 1.0
    # an agent that was never rewarded has a return of 0
    others = [episode.rewards.get(name, 0.0) for name in episode.roles if name != agent]
    return episode.rewards.get(agent, 0.0) - sum(others) / len(others)


def _policy_figures(prefix: str, turns: Sequence[Turn]) -> Figures:
    completions = [turn.completion for turn in turns if turn.completion is not None]
    surprisals = [-value for completion in completions for value in completion.logprobs]
    return {
        f"{prefix}/entropy": _mean(surprisals),
        f"{prefix}/reply_tokens_mean": _mean([len(completion.token_ids) for completion in completions]),
        f"{prefix}/length_rate": _mean([completion.finish_reason is FinishReason.LENGTH for completion in completions]),
    }


def _mean(values: Sequence[float] | Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
