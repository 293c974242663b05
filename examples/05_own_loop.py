"""A training loop of one's own: `rollout()`, a credit function and `host.update()`. Begins where 03's warm start ended."""

from collections import defaultdict
from importlib import import_module
from statistics import fmean

import opentinker

LR = 1e-3


def credit(groups):
    """One advantage a turn, by episode: its reward less the mean of all turns that saw the same light."""
    episodes = [episode for group in groups for episode in group.episodes]
    paid = defaultdict(list)
    for episode in episodes:
        for turn in episode.turns:
            paid[turn.observation].append(turn.reward)
    return {e.id: tuple(turn.reward - fmean(paid[turn.observation]) for turn in e.turns) for e in episodes}


settings = import_module("03_train").CONFIG
start = opentinker.read_run("runs/crossing").weights("voter", step=0)  # a name such as 03_train needs import_module
config = opentinker.load_config(settings, [f"policies.voter.model={start.resolve()}"])

host = opentinker.LocalHost(config.policies, config.train, seed=config.seed)
for step in range(1, 21):
    groups = opentinker.rollout(config, host, step=step)
    samples, _ = opentinker.to_samples(groups, credit(groups))
    result = host.update("voter", samples, lr=LR)
    if step % 5 == 0:
        mean = fmean(episode.rewards["ann"] for group in groups for episode in group.episodes)
        print(f"step {step:2d}: {mean:.2f} of 3 lights, entropy {result.metrics['entropy']:.2f}")
host.close()
