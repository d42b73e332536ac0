"""Model graphs from model graph files, Hugging Face configs and timing tables."""

from octoplan.importers.options import ImportOptions
from octoplan.importers.source import import_model

__all__ = ["ImportOptions", "import_model"]
