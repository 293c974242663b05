"""Measures of play: how far a policy is from equilibrium, later opponents, ratings and tournaments."""
