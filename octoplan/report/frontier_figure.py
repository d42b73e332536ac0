"""The picture of a frontier: makespan over memory, with the bound below it and the baselines around it."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from octoplan.report import style

_WIDTH, _HEIGHT, _DPI = 8.0, 5.0, 130
#: Makespans this far apart are drawn on a logarithmic axis.
_LARGE_RATIO = 3.0
_FRONTIER_COLOUR = style.KIND_COLOURS["F"]
_BASELINE_COLOUR = style.KIND_COLOURS["B"]


@dataclass(frozen=True)
class FrontierPicture:
    """What the picture shows; memory in any unit, times in seconds.

    Attributes
    ----------
    points:
        ``(memory, makespan, lower bound)``, least memory first.
    baselines:
        ``(name, memory, makespan)``.
    job_limit:
        The job's own limit; None: no limit.
    """

    title: str
    memory_label: str
    points: tuple[tuple[float, float, float], ...]
    baselines: tuple[tuple[str, float, float], ...]
    job_limit: float | None


def frontier_figure(picture: FrontierPicture) -> Figure:
    """Draw a frontier on a figure of its own."""
    figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    factor, unit = style.time_unit(max(makespan for _, makespan, _ in picture.points))
    _draw_points(axes, picture, factor)
    _draw_baselines(axes, picture, factor)
    if picture.job_limit is not None:
        axes.axvline(
            picture.job_limit, color=style.LIMIT_COLOUR, lw=1, dashes=(5, 2), label="the job's limit"
        )
    _dress(axes, picture, unit)
    return figure


def _draw_points(axes: Axes, picture: FrontierPicture, factor: float) -> None:
    memory = [point[0] for point in picture.points]
    makespan = [factor * point[1] for point in picture.points]
    bound = [factor * point[2] for point in picture.points]
    # What a plan reaches holds for every looser limit, up to the next point: hence the steps.
    axes.step(memory, makespan, where="post", color=_FRONTIER_COLOUR, lw=1.4, label="best plan found")
    axes.plot(memory, makespan, "o", color=_FRONTIER_COLOUR, ms=4)
    axes.step(memory, bound, where="pre", color=style.MUTED_COLOUR, lw=1, label="lower bound")


def _draw_baselines(axes: Axes, picture: FrontierPicture, factor: float) -> None:
    """Draw the baselines that are not far off the picture; name those that no other beats in both."""
    shown = _shown_baselines(picture)
    if not shown:
        return
    memory = [entry[1] for entry in shown]
    makespan = [factor * entry[2] for entry in shown]
    axes.plot(memory, makespan, "x", color=_BASELINE_COLOUR, ms=5, label="baselines")
    for name, x, y in _unbeaten(shown):
        axes.annotate(
            name,
            (x, factor * y),
            xytext=(4, 3),
            textcoords="offset points",
            fontsize=6.5,
            color=style.MUTED_COLOUR,
            annotation_clip=True,
        )


def _shown_baselines(picture: FrontierPicture) -> list[tuple[str, float, float]]:
    """Leave out what would squeeze the frontier into a corner."""
    widest = 1.5 * picture.points[-1][0]
    slowest = max(makespan for _, makespan, _ in picture.points)
    return [entry for entry in picture.baselines if entry[1] <= widest and entry[2] <= slowest]


def _unbeaten(baselines: list[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Return the baselines with less memory or a shorter makespan than any other, least memory first."""
    result: list[tuple[str, float, float]] = []
    for entry in sorted(baselines, key=lambda one: (one[1], one[2])):
        if not result or entry[2] < result[-1][2]:
            result.append(entry)
    return result


def _dress(axes: Axes, picture: FrontierPicture, unit: str) -> None:
    fastest = min(makespan for _, makespan, _ in picture.points)
    if max(makespan for _, makespan, _ in picture.points) > _LARGE_RATIO * fastest > 0:
        axes.set_yscale("log")
        for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            ticks(lambda value, position: f"{value:g}")
    axes.set_title(style.printable(picture.title), fontsize=11, color=style.TEXT_COLOUR, parse_math=False)
    axes.set_xlabel(picture.memory_label, fontsize=9, color=style.TEXT_COLOUR)
    axes.set_ylabel(f"makespan ({unit})", fontsize=9, color=style.TEXT_COLOUR)
    axes.tick_params(labelsize=8, colors=style.TEXT_COLOUR, which="both")
    axes.grid(color=style.IDLE_COLOUR, lw=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
