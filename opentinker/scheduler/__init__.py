"""Which policies train or serve on which device, now."""
