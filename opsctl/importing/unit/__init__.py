"""Reads systemd's units as systemd reads them: sections, drop-ins, words, variables."""
