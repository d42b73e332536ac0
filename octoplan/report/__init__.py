"""Reports: pictures of a plan's timeline."""

from octoplan.report.timeline import MemoryCurve, Timeline, TimelineOp, TimelineTransfer, draw_timeline

__all__ = ["MemoryCurve", "Timeline", "TimelineOp", "TimelineTransfer", "draw_timeline"]
