"""What the runtime's programs share."""

from __future__ import annotations

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """End the program with exit code 2."""
        self.exit(2, f"{self.prog}: error: {message}\n")
