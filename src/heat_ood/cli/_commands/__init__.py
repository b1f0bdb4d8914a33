"""The commands, one a file: each registers itself and is found here, so that a new one is a new file and no more."""
