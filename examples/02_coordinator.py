"""A coordinator of one's own: who acts when, who hears what. Three agents drive in the world of 01, made for one."""

from opentinker import Coordinator, Query


class Vote(Coordinator):
    """All see the light and vote at once, none sees another's vote; the majority drives, and all are paid alike."""

    def agents(self, env):
        return ["ann", "bob", "cleo"]

    async def play(self, env, table):
        codec = env.codec(env.possible_agents[0])  # how the world's only agent sees and acts
        light, _ = await env.reset(table.seed)
        over = False
        while not over:
            asked = {agent: Query(light, space=codec) for agent in self.agents(env)}
            votes = list((await table.ask_all(asked)).values())
            light, reward, terminated, truncated, _ = await env.step(max(votes, key=votes.count))
            over = terminated or truncated
            for agent in asked:
                table.reward(agent, reward)
        for agent in asked:
            table.end(agent, terminated, truncated)


if __name__ == "__main__":
    from opentinker.testing import play_game

    answers = {
        "ann": lambda light, space, mask: "g" if light == "green" else "s",
        "bob": lambda light, space, mask: "g" if light == "green" else "s",
        "cleo": lambda light, space, mask: "g",  # is outvoted
    }
    episode = play_game("01_environment:Crossing", Vote(), answers, seed=1)
    for turn in episode.turns:
        print(f"{turn.agent:4s} saw {turn.observation:5s} and said {turn.reply}: {turn.reward:g}")
    print(episode.status, dict(episode.rewards))
