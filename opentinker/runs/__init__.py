"""Runs on disk: their folders, checkpoints and state, found, listed and taken up again."""
