"""An environment of one's own, a Gymnasium environment with texts in and out, and its check."""

from opentinker import TextEnv, TextSpace, check_env, make_env


class Crossing(TextEnv):
    """Three traffic lights in a row: 1 for going at green, 1 for stopping at red."""

    def __init__(self):
        self.observation_space = TextSpace(choices=("green", "red"))
        self.action_space = TextSpace(choices=("g", "s"))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # seeds self.np_random, the only source of chance
        self.lights = self.np_random.choice(["green", "red"], size=4).tolist()
        return self.lights[0], {}

    def step(self, action):
        reward = float(action == ("g" if self.lights.pop(0) == "green" else "s"))
        return self.lights[0], reward, len(self.lights) == 1, False, {}


if __name__ == "__main__":
    env = make_env("01_environment:Crossing")  # any class, by its import path
    light, _ = env.reset(seed=7)
    print("first light:", light)
    print("going pays:", env.step("g")[1])
    findings = check_env("01_environment:Crossing")
    print("check:", "sound" if not findings else findings)
