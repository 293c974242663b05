"""What a run shows: figures, curves and episodes for a person to read."""
