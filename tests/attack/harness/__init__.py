"""The attack on what the library promises: files of all formats, false alarms, threads, writers; see ``run.py``."""
