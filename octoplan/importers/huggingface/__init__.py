"""Hugging Face ``config.json``: from the fields of each supported family to an architecture."""

from octoplan.importers.huggingface.registry import SUPPORTED, read_architecture

__all__ = ["SUPPORTED", "read_architecture"]
