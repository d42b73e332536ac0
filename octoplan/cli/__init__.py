"""The command line: ``octoplan COMMAND`` (contract, section 6)."""

from octoplan.cli.app import main

__all__ = ["main"]
