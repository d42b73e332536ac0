"""Exports: plans for engines that people already run, and for trace viewers (contract, section 6)."""

from octoplan.exports.export import EXPORTERS, Exported, export_plan

__all__ = ["EXPORTERS", "Exported", "export_plan"]
