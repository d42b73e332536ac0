"""Miniatures: small real torch layers of the same kinds, in the same order, as a model graph's."""

from octoplan_runtime.miniature.build import MiniatureSize, build_miniature

__all__ = ["MiniatureSize", "build_miniature"]
