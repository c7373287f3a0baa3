"""Reads what a shell would read, and runs nothing: words, simple commands, variables."""

from opsctl.importing.shell.expand import Scope, expand, expand_one
from opsctl.importing.shell.parse import Simple, Unreadable, commands

__all__ = ["Scope", "Simple", "Unreadable", "commands", "expand", "expand_one"]
