"""Games of our own: one file each, rules and text together."""
