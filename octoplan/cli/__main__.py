"""``python -m octoplan.cli``: the same as the ``octoplan`` command."""

from octoplan.cli import main

main()
