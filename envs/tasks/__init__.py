"""Tasks with scored answers."""
