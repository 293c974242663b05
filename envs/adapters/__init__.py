"""Foreign families of environments, one file each."""
