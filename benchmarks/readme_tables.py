"""Fill the tables of studies into the README and docs, between their markers.

``python benchmarks/readme_tables.py [--paper-profiles out/paper-profiles] [--ablation out/ablation]``

after ``octoplan study paper-profiles -o out/paper-profiles`` and ``octoplan study ablation -o out/ablation``.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pandas as pd

from octoplan.study import load_results
from octoplan.study.statistics import label_column, makespans, speedup
from octoplan.study.tables import Table, to_markdown
from octoplan_schemas.files import write_text

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Fill the tables of the studies given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paper-profiles", type=Path, help="folder of that study")
    parser.add_argument("--ablation", type=Path, help="folder of that study")
    arguments = parser.parse_args()
    if arguments.paper_profiles:
        frame = load_results(arguments.paper_profiles)
        frame["label"] = label_column(frame)
        fill(ROOT / "README.md", "paper-profiles", to_markdown(both_speedups(frame)))
    if arguments.ablation:
        text = (arguments.ablation / "tables" / "dimensions.md").read_text(encoding="utf-8")
        fill(ROOT / "docs" / "studies.md", "ablation", text)


def both_speedups(frame: pd.DataFrame) -> Table:
    """Return speedups over 1F1B and over balanced 1F1B in one cell for each method and memory limit."""
    limits = list(frame["memory_limit"].unique())
    tables = {limit: makespans(frame[frame["memory_limit"] == limit]) for limit in limits}
    rows = tuple(
        (str(label), *(cell(tables[limit], str(label)) for limit in limits))
        for label in frame["label"].unique()
    )
    return Table("paper-profiles", "", ("strategy", *limits), rows)


def cell(table: pd.DataFrame, label: str) -> str:
    """Return both speedups, and on how many instances the method has a plan if not on all."""
    solved = int(table[label].notna().sum())
    found = [speedup(table, label, reference) for reference in ("1f1b", "1f1b:balanced")]
    means = " / ".join("-" if estimate is None else f"{estimate.mean:.2f}" for estimate in found)
    if not solved:
        return "-"
    return means if solved == len(table) else f"{means} ({solved} of {len(table)})"


def fill(path: Path, name: str, text: str) -> None:
    """Put a text between ``<!-- NAME -->`` and ``<!-- end of NAME -->``."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    page = path.read_text(encoding="utf-8")
    filled, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda match: f"{begin}\n{text}{end}", page, flags=re.DOTALL
    )
    assert count == 1, f"{path} has no markers for {name}"
    write_text(path, filled)


if __name__ == "__main__":
    main()
