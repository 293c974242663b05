"""Read the run of 03: its figures, its episodes, its weights. Works while a run trains, too, and loads no model."""

import opentinker

run = opentinker.read_run("runs/crossing")
print("seed", run.seed, "- steps", run.config.train.steps, "- seconds", round(run.last("time_s"), 1))

for key in ("rollout/ann/return_mean", "rollout/ann/invalid_rate", "train/voter/entropy"):
    figure = run.figure(key)  # (step, value), oldest first; run.rows has all lines of metrics.jsonl
    print(f"{key}: {figure[0][1]:.2f} at step {figure[0][0]}, {figure[-1][1]:.2f} at step {figure[-1][0]}")

episodes = list(run.episodes())  # with every prompt id, sampled id and log-probability
print(len(episodes), "episodes were kept; the last one:")
for turn in episodes[-1].turns:
    sure = 2.718 ** sum(turn.completion.logprobs)
    print(f"  {turn.agent:4s} saw {turn.observation:5s} and said {turn.reply!r} (probability {sure:.2f}): {turn.reward:g}")

print("curves: ", run.curves)
print("weights:", run.weights("voter"))  # in Hugging Face layout
