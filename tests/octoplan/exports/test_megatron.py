"""``megatron``: a parser of Megatron's notations, written from its documentation, rebuilds the plan's stages."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import octoplan
from octoplan_schemas import ModelGraph, Plan
from tests.builders import make_layer, make_model
from tests.octoplan.exports.samples import block_model, compiled, pair


def flags_of(plan: Plan, model: ModelGraph, folder: Path) -> dict[str, str]:
    (file,) = octoplan.export_plan(plan, "megatron", folder / "flags.txt", model=model).files
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    tokens = shlex.split(" ".join(lines))
    assert all(token.startswith("--") for token in tokens[::2])
    return dict(zip(tokens[::2], tokens[1::2], strict=True))


def parse_layout(text: str) -> list[str]:
    """Return the letters of every stage: ``(...)*n`` and ``x*n`` repeat, ``|`` separates, commas are for the eye."""
    text = text.replace(",", "")
    text = re.sub(r"\(([^)]+)\)\*(\d+)", lambda match: match[1] * int(match[2]), text)
    text = re.sub(r"(.)\*(\d+)", lambda match: match[1] * int(match[2]), text)
    return text.split("|")


def stages_of(letters: list[str], num_ranks: int) -> list[tuple[int, int, int]]:
    """Return ``(first, end, rank)``: stage k is chunk k // ranks of rank k mod ranks."""
    assert len(letters) % num_ranks == 0
    found, first = [], 0
    for index, own in enumerate(letters):
        found.append((first, first + len(own), index % num_ranks))
        first += len(own)
    return found


def planned(plan: Plan) -> list[tuple[int, int, int]]:
    return [(*stage.layers, stage.rank) for stage in plan.stages]


def test_the_parser_reads_the_documented_example() -> None:
    letters = parse_layout("Et*3|(tt|)*29,m|L")
    assert len(letters) == 32
    assert letters[0] == "Ettt"
    assert set(letters[1:30]) == {"tt"}
    assert letters[30:] == ["m", "L"]


@pytest.mark.parametrize(
    ("num_ranks", "options"),
    [
        (1, {"target": "megatron"}),
        (2, {"target": "megatron"}),
        (3, {"target": "megatron"}),
        (3, {"strategy": "1f1b"}),
        (2, {"strategy": "interleaved-1f1b:balanced:v=3"}),
    ],
)
def test_the_layout_rebuilds_the_stages(num_ranks: int, options: dict[str, object], tmp_path: Path) -> None:
    model = block_model(12, ("transformer", "transformer_moe"))
    plan = compiled(model, pair(num_ranks), 6, **options)
    flags = flags_of(plan, model, tmp_path)
    assert flags.pop("--pipeline-model-parallel-size") == str(num_ranks)
    letters = parse_layout(flags.pop("--pipeline-model-parallel-layout"))
    assert "".join(letters) == "E" + 12 * "t" + "L"
    assert stages_of(letters, num_ranks) == planned(plan)
    assert flags == {}


def test_a_hybrid_pattern_rebuilds_the_stages(tmp_path: Path) -> None:
    model = block_model(9, ("mamba2", "mlp", "attention", "moe"))
    plan = compiled(model, pair(3), 6, target="megatron")
    flags = flags_of(plan, model, tmp_path)
    letters = flags["--hybrid-layer-pattern"].split("|")
    assert "".join(letters) == "M-*EM-*EM"
    # Embedding and head have no letter: the first and the last stage hold one layer more.
    letters[0], letters[-1] = f"e{letters[0]}", f"{letters[-1]}h"
    assert stages_of(letters, 3) == planned(plan)


def test_a_group_size_is_given_where_microbatches_are_no_multiple_of_the_ranks(tmp_path: Path) -> None:
    model = block_model(12)
    plan = compiled(model, pair(3), 8, strategy="interleaved-1f1b")
    size = int(flags_of(plan, model, tmp_path)["--microbatch-group-size-per-virtual-pipeline-stage"])
    # Megatron's rule: from the ranks to the microbatches, and a last group that is whole or not too small.
    assert 3 <= size <= 8
    assert 8 % size == 0 or 8 % size >= 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "gpipe"}, "op 2 of rank 0"),
        ({"strategy": "zb-h1"}, "runs its own 1f1b order"),
        ({"strategy": "zb-v"}, "stage s on rank s mod 2"),
        ({"strategy": "looped-bfs"}, "interleaved-1f1b order"),
    ],
)
def test_other_orders_and_placements_are_refused(
    options: dict[str, object], words: str, tmp_path: Path
) -> None:
    model = block_model(6)
    plan = compiled(model, pair(2), 4, **options)
    with pytest.raises(octoplan.InfeasibleError, match=words):
        flags_of(plan, model, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_fewer_microbatches_than_ranks_are_refused_with_several_stages(tmp_path: Path) -> None:
    model = block_model(8)
    plan = compiled(model, pair(3), 2, strategy="interleaved-1f1b")
    with pytest.raises(octoplan.InfeasibleError, match="a microbatch for each"):
        flags_of(plan, model, tmp_path)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (["mlp", "transformer", "lm_head"], "an embedding first, but layer 'l0' is a 'mlp'"),
        (["embedding", "transformer", "transformer"], "a head last"),
        (["embedding", "conv", "transformer", "lm_head"], "no letter for layer 'l1' of kind 'conv'"),
        (["embedding", "transformer", "mamba2", "lm_head"], "no letter for layer 'l1'"),
    ],
)
def test_a_model_that_megatron_does_not_build_is_refused(
    kinds: list[str], words: str, tmp_path: Path
) -> None:
    model = make_model([make_layer(f"l{index}", kind=kind) for index, kind in enumerate(kinds)])
    with pytest.raises(octoplan.InfeasibleError, match=words):
        flags_of(compiled(model, pair(2), 4, strategy="1f1b"), model, tmp_path)
    with pytest.raises(octoplan.InfeasibleError, match=words):
        compiled(model, pair(2), 4, target="megatron")


def test_a_name_from_strangers_stays_in_its_comment(tmp_path: Path) -> None:
    model = block_model(4).model_copy(update={"name": "x\n--load /etc/passwd\r--y"})
    flags = flags_of(compiled(model, pair(2), 4, strategy="1f1b"), model, tmp_path)
    assert set(flags) == {"--pipeline-model-parallel-size", "--pipeline-model-parallel-layout"}
