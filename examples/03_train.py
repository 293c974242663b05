"""Train it: one policy in all three seats of 02, from random weights. A few seconds, then a run lies in `runs/crossing`."""

import opentinker

CONFIG = {
    "name": "crossing",
    "env": {"id": "01_environment:Crossing"},
    "coordinator": {"id": "02_coordinator:Vote"},
    "agents": {"*": {"policy": "voter", "memory": "last"}},
    "policies": {"voter": {"model": "tiny", "sampling": {"max_tokens": 1}}},
    "warm_start": {"player": "random_legal", "steps": 20, "episodes": 16},
    "rollout": {"groups": 32, "record": 8},
    "train": {
        "credit": "state_baseline",
        "credit_kwargs": {"gamma": 0},  # a vote is answered at once: later lights are not its doing
        "optim": {"lr": 1e-3},
        "steps": 30,
    },
}

if __name__ == "__main__":
    result = opentinker.train(CONFIG, resume=True)
    for step, mean in result.figure("rollout/ann/return_mean")[::7]:
        print(f"step {step:2d}: {mean:.2f} of 3 lights")
    print("run:", result.folder)
