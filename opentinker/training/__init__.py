"""Execution of updates on verl: the only part of the package that imports verl. Importing this package imports nothing."""
