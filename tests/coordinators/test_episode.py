import asyncio
import logging
import time

import pytest

from opentinker.coordinators import Coordinator, Query, Simultaneous, Solo, Table, Turns, play_episode
from opentinker.envs.handle import EnvHandle, open_env
from opentinker.errors import ConfigError, SamplerError, SeatOut
from opentinker.testing import CountingPace, FunctionSeat, HangingEnv, OffTurnDeathEnv, RaisingEnv, SlowEnv
from opentinker.types import Attempt, Decision, EpisodeStatus, Verdict


def play(at, coordinator=None, **settings):
    return asyncio.run(play_episode(coordinator or Solo(), at.env, at.table, **settings))


async def hang(observation):
    await asyncio.Event().wait()


def verdict(kind):
    return lambda observation: Decision((Attempt((), None, "?", None, False, "no move"),), None, kind, "no move")


class Script(Coordinator):
    """A coordinator made of one function."""

    def __init__(self, play):
        self._play = play

    async def play(self, env, table):
        await self._play(env, table)


# how players leave


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (verdict(Verdict.FORFEIT), EpisodeStatus.TERMINATED, "forfeit"),
        (verdict(Verdict.TRUNCATE), EpisodeStatus.TRUNCATED, "truncate"),
        (hang, EpisodeStatus.TRUNCATED, "timeout"),
    ],
    ids=["forfeit", "truncate", "timeout"],
)
def test_a_player_who_leaves_ends_the_game_by_its_reason(seated, answer, status, reason):
    at = seated(OffTurnDeathEnv(2), {"player_0": "wait", "player_1": answer}, turn_timeout=0.05)
    episode = play(at, Turns())
    assert (episode.status, episode.error) == (status, "")
    assert episode.outcome["out"] == {"player_1": reason}
    assert episode.outcome["detail"]["player_1"]
    assert [turn.agent for turn in episode.turns] == ["player_0", "player_1"][: 1 if reason == "timeout" else 2]
    assert set(episode.rewards) == {"player_0", "player_1"}


def test_e7_a_failing_sampler_in_a_game_of_turns_fails_the_episode_with_its_traceback(seated, caplog):
    def exploding(observation):
        raise SamplerError("out of memory")

    at = seated(OffTurnDeathEnv(2), {"player_0": "wait", "player_1": exploding})
    episode = play(at, Turns())
    assert episode.status is EpisodeStatus.FAILED
    assert episode.outcome["out"] == {"player_1": "failed"}
    assert "out of memory" in episode.error and "in exploding" in episode.error
    assert "OffTurnDeathEnv (seed 7)" in episode.error
    assert "in exploding" in caplog.text


def test_who_never_came_to_act_is_on_the_record(seated):
    at = seated(OffTurnDeathEnv(2), {"player_0": verdict(Verdict.FORFEIT), "player_1": "wait"})
    episode = play(at, Turns())
    assert episode.rewards == {"player_0": 0.0, "player_1": 0.0}
    assert episode.roles == {"player_0": "player_0", "player_1": "player_1"}


def test_a_coordinator_may_go_on_without_a_player(seated):
    async def go_on(env, table):
        with pytest.raises(SeatOut):
            await table.ask("player_0", "?")
        await table.ask("player_1", "?")

    at = seated(OffTurnDeathEnv(2), {"player_0": verdict(Verdict.FORFEIT), "player_1": "wait"})
    episode = play(at, Script(go_on))
    assert episode.status is EpisodeStatus.TERMINATED
    assert episode.outcome["forfeit"] == "player_0"
    assert len(episode.turns) == 2


def test_a_leaving_inside_the_coordinators_own_task_group_counts_as_one(seated):
    async def grouped(env, table):
        async with asyncio.TaskGroup() as group:
            group.create_task(table.ask("player_0", "?"))
            group.create_task(table.ask("player_1", "?"))

    at = seated(OffTurnDeathEnv(2), {"player_0": hang, "player_1": verdict(Verdict.FORFEIT)})
    episode = play(at, Script(grouped), episode_timeout=5)
    assert (episode.status, episode.outcome["forfeit"]) == (EpisodeStatus.TERMINATED, "player_1")


def test_a_coordinator_may_put_a_player_out_itself(seated):
    async def resign(env, table):
        raise SeatOut("player_1", "forfeit", "resigned")

    async def wrong(env, table):
        raise SeatOut("player_1", "boredom")

    answers = {"player_0": "wait", "player_1": "wait"}
    episode = play(seated(OffTurnDeathEnv(2), answers), Script(resign))
    assert (episode.status, episode.outcome["forfeit"]) == (EpisodeStatus.TERMINATED, "player_1")
    episode = play(seated(OffTurnDeathEnv(2), answers), Script(wrong))
    assert episode.status is EpisodeStatus.FAILED and "boredom" in episode.error


# how worlds break


def test_e6_one_of_500_environments_raises_and_499_finish(caplog):
    async def one(number):
        env = EnvHandle.wrap(RaisingEnv(at=2, steps=3, only_seed=123, message="cell 7 is on fire"), isolation="inline")
        seat = FunctionSeat("agent", lambda *asked: "go")
        return await play_episode(Solo(), env, Table(env, lambda agent: seat, episode_id=f"1/{number}/0", seed=number))

    async def main():
        return await asyncio.gather(*[one(number) for number in range(500)])

    with caplog.at_level(logging.ERROR):
        episodes = asyncio.run(main())
    failed = [episode for episode in episodes if episode.status is EpisodeStatus.FAILED]
    assert [episode.id for episode in failed] == ["1/123/0"]
    assert sum(episode.status is EpisodeStatus.TERMINATED and len(episode.turns) == 3 for episode in episodes) == 499
    for text in (failed[0].error, caplog.text):
        assert "RuntimeError: cell 7 is on fire" in text
        assert "in work" in text and "raise RuntimeError(self.message)" in text  # the environment's own line
        assert "episode 1/123/0 of RaisingEnv (seed 123)" in text
    assert len(failed[0].turns) == 2  # what was played is kept


@pytest.mark.parametrize("isolation", ["inline", "thread"])
def test_an_error_in_reset_fails_the_episode(seated, isolation):
    at = seated(RaisingEnv(at=0), {"agent": "go"}, isolation)
    episode = play(at)
    assert episode.status is EpisodeStatus.FAILED
    assert "the world broke" in episode.error and "in work" in episode.error


def test_e8_a_hanging_step_ends_its_episode_at_the_steps_deadline(seated):
    world = HangingEnv(at=2)
    at = seated(EnvHandle.wrap(world, isolation="thread", step_timeout=0.5), {"agent": "go"})
    start = time.perf_counter()
    episode = play(at)
    assert time.perf_counter() - start < 10
    assert episode.status is EpisodeStatus.FAILED
    assert "EnvTimeout" in episode.error and "HangingEnv" in episode.error and "(seed 7)" in episode.error
    assert at.env.abandoned and len(episode.turns) == 2
    world.release()


def test_e8_a_hanging_step_ends_its_episode_at_the_episodes_deadline(seated, caplog):
    world = HangingEnv(at=1)
    at = seated(EnvHandle.wrap(world, isolation="thread"), {"agent": "go"})
    other = seated(SlowEnv(0, steps=3), {"agent": "go"})

    async def main():
        return await asyncio.gather(
            play_episode(Solo(), at.env, at.table, episode_timeout=0.5), play_episode(Solo(), other.env, other.table)
        )

    hanging, fine = asyncio.run(main())
    assert fine.status is EpisodeStatus.TERMINATED
    assert hanging.status is EpisodeStatus.TRUNCATED
    text = "episode 1/0/0 of HangingEnv (seed 7): overran its 0.5 s, waiting for env.step"
    assert hanging.outcome["deadline"] == text and text in caplog.text
    assert hanging.error == "" and len(hanging.turns) == 1
    world.release()


def test_an_error_of_the_coordinator_fails_the_episode(seated):
    async def typo(env, table):
        return table.aks("agent", "?")

    episode = play(seated(SlowEnv(0), {"agent": "go"}), Script(typo))
    assert episode.status is EpisodeStatus.FAILED
    assert "'Table' object has no attribute 'aks'" in episode.error and "in typo" in episode.error


def test_an_agent_without_a_seat_fails_the_episode(seated):
    episode = play(seated(OffTurnDeathEnv(2), {"player_0": "wait"}), Turns())
    assert episode.status is EpisodeStatus.FAILED and "player_1" in episode.error


# deadlines


def test_the_episodes_deadline_truncates_and_keeps_what_was_asked(seated):
    at = seated(OffTurnDeathEnv(2), {"player_0": "wait", "player_1": hang})
    episode = play(at, Turns(), episode_timeout=0.05)
    assert episode.status is EpisodeStatus.TRUNCATED
    assert "waiting for player_1" in episode.outcome["deadline"]
    assert episode.final_prompts == {"player_1": tuple(map(ord, "player_0 said wait."))}
    assert "out" not in episode.outcome


def test_the_deadline_wins_over_an_error_on_the_way_out(seated, caplog):
    async def messy(env, table):
        try:
            await table.ask("agent", "?")
        finally:
            raise ValueError("in the clean-up")

    episode = play(seated(SlowEnv(0), {"agent": hang}), Script(messy), episode_timeout=0.05)
    assert episode.status is EpisodeStatus.TRUNCATED and "deadline" in episode.outcome
    assert "in the clean-up" in caplog.text


def test_a_turns_deadline_inside_an_episodes(seated):
    at = seated(SlowEnv(0), {"agent": hang}, turn_timeout=0.05)
    episode = play(at, episode_timeout=5)
    assert episode.outcome["out"] == {"agent": "timeout"} and "deadline" not in episode.outcome
    at = seated(SlowEnv(0), {"agent": hang}, turn_timeout=5)
    episode = play(at, episode_timeout=0.05)
    assert "out" not in episode.outcome and "deadline" in episode.outcome


def test_a_timeout_error_of_the_coordinators_own_is_no_deadline(seated):
    async def impatient(env, table):
        await asyncio.wait_for(table.ask("agent", "?"), 0.02)

    episode = play(seated(SlowEnv(0), {"agent": hang}), Script(impatient), episode_timeout=5)
    assert episode.status is EpisodeStatus.FAILED and "TimeoutError" in episode.error


# what passes through


def cancelled_midway(at, coordinator, again=0, timeout=None):
    async def main():
        task = asyncio.ensure_future(play_episode(coordinator, at.env, at.table, episode_timeout=timeout))
        await asyncio.sleep(0.02)
        task.cancel()
        for _ in range(again):
            await asyncio.sleep(0)
            task.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await task
        assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [None, 30])
@pytest.mark.parametrize("turn_timeout", [None, 30])
def test_a_cancellation_passes_through_a_decision(seated, timeout, turn_timeout, caplog):
    at = seated(SlowEnv(0), {"agent": hang}, turn_timeout=turn_timeout)
    cancelled_midway(at, Solo(), timeout=timeout)
    assert at.table.out == {} and caplog.text == ""


@pytest.mark.parametrize("again", [0, 1, 2])
@pytest.mark.parametrize("timeout", [None, 30])
def test_a_cancellation_passes_through_a_barrier_and_the_count_stays(seated, again, timeout):
    pace = CountingPace()
    pace.enter()

    async def slow_to_end(observation):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)

    env = open_env("matrix_game")
    at = seated(env, {"player_0": hang, "player_1": slow_to_end}, pace=pace)
    cancelled_midway(at, Simultaneous(), again=again, timeout=timeout)
    assert pace.count == 1


def test_a_cancellation_passes_through_an_environment(seated):
    world = HangingEnv(at=1)
    cancelled_midway(seated(world, {"agent": "go"}, "thread"), Solo())
    world.release()


@pytest.mark.parametrize("timeout", [None, 30])
def test_a_cancellation_that_a_seat_turns_into_an_error_is_still_one(seated, timeout):
    async def rude(observation):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise SamplerError("request cancelled") from None

    cancelled_midway(seated(SlowEnv(0), {"agent": rude}, turn_timeout=timeout), Solo(), timeout=timeout)


def test_a_cancellation_that_a_coordinator_turns_into_an_error_is_still_one(seated):
    async def messy(env, table):
        try:
            await table.ask("agent", "?")
        finally:
            raise ValueError("in the clean-up")

    cancelled_midway(seated(SlowEnv(0), {"agent": hang}), Script(messy), timeout=30)


def test_a_request_cancelled_from_below_fails_the_episode_and_cancels_nobody(seated):
    async def main():
        answer = asyncio.get_running_loop().create_future()

        async def broken_pool(env, table):
            asyncio.get_running_loop().call_soon(answer.cancel)
            await answer

        at = seated(SlowEnv(0), {"agent": "go"})
        return await play_episode(Script(broken_pool), at.env, at.table)

    episode = asyncio.run(main())
    assert episode.status is EpisodeStatus.FAILED and "CancelledError" in episode.error


def raising(seated, error, where, pace=None):
    """A game of two in which somebody raises: a seat, a seat at a barrier where the other hangs, or the coordinator."""

    def raises(observation):
        raise error

    async def coordinate(env, table):
        if where == "coordinator":
            raise error
        if where == "seat":
            await table.ask("player_0", "?")
        await table.ask_all(
            {"player_0": Query("?"), "player_1": Query("?")}, on_out="skip" if where == "skip" else "release"
        )

    at = seated(OffTurnDeathEnv(2), {"player_0": raises, "player_1": hang}, pace=pace)
    return at, Script(coordinate)


@pytest.mark.parametrize("where", ["seat", "barrier", "coordinator"])
def test_an_interrupt_passes_through(seated, where):
    at, script = raising(seated, KeyboardInterrupt(), where)
    with pytest.raises(KeyboardInterrupt):
        play(at, script, episode_timeout=5)


@pytest.mark.parametrize("where", ["seat", "barrier", "coordinator"])
def test_an_exit_fails_the_episode_with_its_traceback(seated, where):
    at, script = raising(seated, SystemExit(0), where)
    episode = play(at, script, episode_timeout=5)
    assert episode.status is EpisodeStatus.FAILED
    assert "SystemExit" in episode.error and "raise error" in episode.error
    assert "OffTurnDeathEnv (seed 7)" in episode.error
    assert episode.outcome.get("out") == (None if where == "coordinator" else {"player_0": "failed"})


@pytest.mark.parametrize("where", ["seat", "barrier", "coordinator"])
def test_a_generators_exit_fails_the_episode_with_its_traceback(seated, where):
    at, script = raising(seated, GeneratorExit(0), where)
    episode = play(at, script, episode_timeout=5)
    assert episode.status is EpisodeStatus.FAILED
    assert "GeneratorExit: 0" in episode.error and "raise error" in episode.error


@pytest.mark.parametrize("where", ["seat", "barrier", "coordinator"])
def test_an_error_without_a_text_fails_the_episode_with_its_traceback(seated, where):
    class Speechless(Exception):
        def __str__(self):
            raise ValueError

        __repr__ = __str__

    at, script = raising(seated, Speechless(), where)
    episode = play(at, script, episode_timeout=5)
    assert episode.status is EpisodeStatus.FAILED
    assert "Speechless: (its __str__ raised ValueError)" in episode.error and "raise error" in episode.error


def test_an_exit_in_a_final_prompt_fails_the_episode(seated):
    def leave(observation):
        raise SystemExit(0)

    at = seated(SlowEnv(0), {"agent": hang}, turn_timeout=0.02)
    at.seats["agent"].final_prompt = leave
    episode = play(at)
    assert episode.status is EpisodeStatus.FAILED and "SystemExit" in episode.error


@pytest.mark.parametrize("where", ["seat", "barrier", "skip", "coordinator"])
def test_e7_a_wrong_configuration_stops_everything_and_releases_the_partners(seated, where):
    error, pace = ConfigError("the move is 3 tokens: raise max_tokens"), CountingPace()
    at, script = raising(seated, error, where, pace)

    async def main():
        pace.enter()
        with pytest.raises(ConfigError) as caught:
            await play_episode(script, at.env, at.table, episode_timeout=5)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return caught.value

    assert asyncio.run(main()) is error
    assert (pace.count, pace.highest) == (1, 2 if where in ("barrier", "skip") else 1)


def test_a_wrong_configuration_comes_out_of_a_task_group_and_of_a_limited_turn(seated):
    def wrong(observation):
        raise ConfigError("no such voice")

    async def grouped(env, table):
        async with asyncio.TaskGroup() as group:
            group.create_task(table.ask("player_0", "?"))
            group.create_task(table.ask("player_1", "?"))

    at = seated(OffTurnDeathEnv(2), {"player_0": hang, "player_1": wrong}, turn_timeout=5)
    with pytest.raises(ConfigError, match="no such voice"):
        play(at, Script(grouped))


@pytest.mark.parametrize("agents", [["player_0", 5], [None], "player_0", None, 3])
def test_agents_that_are_no_names_are_refused(seated, agents):
    class Wrong(Script):
        def agents(self, env):
            return agents

    async def nothing(env, table):
        pass

    with pytest.raises(ConfigError, match=r"Wrong.agents\(\) gave .* for 'OffTurnDeathEnv'; it must give a list of names"):
        play(seated(OffTurnDeathEnv(2), {"player_0": "wait"}), Wrong(nothing))


# scripts that never end


@pytest.mark.parametrize("barrier", [False, True])
def test_asking_on_and_on_who_has_left_is_an_error(seated, barrier):
    asked = []

    async def stubborn(env, table):
        while len(asked) < 1000:
            for agent in ("player_0", "player_1"):
                asked.append(agent)
                try:
                    if barrier:
                        await table.ask_all({agent: Query("?")}, on_out="release")
                    else:
                        await table.ask(agent, "?")
                except SeatOut:
                    continue

    at = seated(OffTurnDeathEnv(2), {"player_0": verdict(Verdict.FORFEIT), "player_1": verdict(Verdict.FORFEIT)})
    episode = play(at, Script(stubborn))
    assert episode.status is EpisodeStatus.FAILED
    assert "player_0 has left (forfeit) and was asked 10 times in a row while nothing else happened" in episode.error
    assert len(asked) == 2 + 2 * 9 + 1  # both leave, both are refused nine times, then the first is asked once too often


def test_who_has_left_may_be_asked_for_ever_while_the_game_goes_on(seated):
    async def round_after_round(env, table):
        await env.reset(table.seed)
        for number in range(60):
            for agent in ("player_0", "player_1"):
                try:
                    await table.ask(agent, str(number))
                except SeatOut:
                    continue
        for _ in range(60):
            try:
                await table.ask("player_0", "?")
            except SeatOut:
                await env.live_agents()

    at = seated(OffTurnDeathEnv(2), {"player_0": verdict(Verdict.FORFEIT), "player_1": "wait"})
    episode = play(at, Script(round_after_round))
    assert (episode.status, len(episode.turns)) == (EpisodeStatus.TERMINATED, 61)


@pytest.mark.parametrize("what", ["env", "seat", "left", "over", "nobody"])
def test_a_script_that_never_ends_meets_its_deadline(seated, what):
    end = time.monotonic() + 20

    async def endless(env, table):
        if what == "over":
            table.end("player_0", True, False)
        while time.monotonic() < end:
            try:
                if what == "env":
                    await env.reset(table.seed)
                elif what == "nobody":
                    await table.ask_all({})
                else:
                    await table.ask("player_0", "?")
            except Exception:
                continue

    answer = verdict(Verdict.FORFEIT) if what == "left" else "wait"
    start = time.monotonic()
    at = seated(OffTurnDeathEnv(2), {"player_0": answer, "player_1": "wait"})
    episode = play(at, Script(endless), episode_timeout=0.1)
    assert "deadline" in episode.outcome and episode.status is EpisodeStatus.TRUNCATED
    assert time.monotonic() - start < 15


def test_an_interrupt_comes_out_of_a_loop_that_goes_on(seated):
    def interrupted(observation):
        raise KeyboardInterrupt

    at = seated(SlowEnv(0), {"agent": interrupted})
    with asyncio.Runner() as runner:
        task = runner.get_loop().create_task(play_episode(Solo(), at.env, at.table))
        for _ in range(2):  # asyncio raises it out of the loop first, then our caller gets it
            with pytest.raises(KeyboardInterrupt):
                runner.get_loop().run_until_complete(task)
        assert isinstance(task.exception(), KeyboardInterrupt)


# timings


def test_timings_tell_environment_and_seats_apart(seated):
    async def think(observation):
        await asyncio.sleep(0.03)
        return "go"

    at = seated(SlowEnv(0.06, steps=2), {"agent": think}, "thread")
    timings = play(at).timings
    assert set(timings) == {"env", "seats", "total"}
    assert 0.12 <= timings["env"] < 1 and 0.06 <= timings["seats"] < 1
    assert timings["env"] + timings["seats"] <= timings["total"]


def test_a_barrier_counts_its_time_once(seated):
    async def think(observation):
        await asyncio.sleep(0.3)
        return "rock"

    timings = play(seated(open_env("matrix_game"), {"player_0": think, "player_1": think}), Simultaneous()).timings
    assert 0.3 <= timings["seats"] < 0.6


def test_one_coordinator_plays_many_episodes_at_once(seated):
    coordinator = Turns()
    tables = [
        seated(OffTurnDeathEnv(3, rounds=2), {f"player_{number}": "wait" for number in range(3)}, member=member)
        for member in range(8)
    ]

    async def main():
        return await asyncio.gather(*[play_episode(coordinator, at.env, at.table) for at in tables])

    assert [(episode.member, len(episode.turns)) for episode in asyncio.run(main())] == [(member, 6) for member in range(8)]


def test_a_script_that_ends_nobodys_game_is_named_in_the_log(caplog):
    from opentinker.testing import play_game

    class Forgetful(Coordinator):
        def agents(self, env):
            return ["agent"]

        async def play(self, env, table):
            observation, _ = await env.reset(table.seed)
            await table.ask("agent", observation)

    episode = play_game("bandit", Forgetful(), lambda *asked: "a")
    assert episode.status is EpisodeStatus.TERMINATED
    assert "nobody's game was over: call table.end for each agent" in caplog.text
