"""Bad sources: one line that names file and field, and says what to change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octoplan.importers import ImportOptions, import_model
from octoplan_schemas import InputError

EXAMPLES = Path(__file__).parents[3] / "examples"
ABSENT = object()


def write(tmp_path: Path, example: str, changes: dict[str, Any]) -> Path:
    """Write a changed copy of an example; a dotted key leads into nested objects."""
    document = json.loads((EXAMPLES / f"{example}.json").read_text())
    for key, value in changes.items():
        *outer, last = key.split("/")
        target = document
        for name in outer:
            target = target[name]
        if value is ABSENT:
            del target[last]
        else:
            target[last] = value
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(document))
    return path


def complaint(path: Path, options: ImportOptions | None = None) -> str:
    with pytest.raises(InputError) as caught:
        import_model(path, options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 500
    return text.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("example", "changes", "expected"),
    [
        ("llama3-8B", {"hidden_size": ABSENT}, "hidden_size: missing"),
        ("llama3-8B", {"hidden_size": None}, "hidden_size: missing"),
        ("llama3-8B", {"hidden_size": "4096"}, "hidden_size: must be an integer, not '4096'"),
        ("llama3-8B", {"hidden_size": 4096.5}, "hidden_size: must be an integer, not 4096.5"),
        ("llama3-8B", {"hidden_size": True}, "hidden_size: must be an integer, not True"),
        ("llama3-8B", {"hidden_size": -1}, "hidden_size: must be between 1 and 1000000000, not -1"),
        ("llama3-8B", {"hidden_size": 0}, "hidden_size: must be between 1 and"),
        (
            "llama3-8B",
            {"vocab_size": 10**4000},
            "vocab_size: must be between 1 and 1000000000, not an integer of",
        ),
        ("llama3-8B", {"num_hidden_layers": 10**12}, "num_hidden_layers: must be between 1 and 100000"),
        ("llama3-8B", {"num_hidden_layers": 100_001}, "num_hidden_layers: must be between 1 and 100000"),
        (
            "llama3-8B",
            {"num_key_value_heads": 5},
            "num_key_value_heads: 5 must divide num_attention_heads 32",
        ),
        ("llama3-8B", {"num_attention_heads": 24}, "num_attention_heads: 24 must divide hidden_size 4096"),
        ("llama3-8B", {"tie_word_embeddings": "no"}, "tie_word_embeddings: must be true or false, not 'no'"),
        ("llama3-8B", {"model_type": 7}, "model_type: must be a non-empty string, not 7"),
        ("gemma2-27B", {"head_dim": ABSENT}, "head_dim: missing"),
        ("gemma3-27B", {"text_config": 3}, "text_config: must be an object"),
        ("gemma3-27B", {"text_config/hidden_size": ABSENT}, "text_config.hidden_size: missing"),
        (
            "gemma3-27B",
            {"text_config/sliding_window_pattern": 0},
            "text_config.sliding_window_pattern: must be",
        ),
        (
            "gemma3-27B",
            {"text_config/layer_types": ["full_attention"]},
            "text_config.layer_types: has 1 entries",
        ),
        (
            "gemma3-27B",
            {"text_config/layer_types": ["chunked"], "text_config/num_hidden_layers": 1},
            "text_config.layer_types.0: must be sliding_attention or full_attention, not 'chunked'",
        ),
        ("qwen3-235B-A22B", {"num_experts_per_tok": 129}, "num_experts_per_tok: must be between 1 and 128"),
        ("qwen3-235B-A22B", {"mlp_only_layers": [-1]}, "mlp_only_layers: must be a list of layer numbers"),
        ("qwen3-235B-A22B", {"decoder_sparse_step": 0}, "decoder_sparse_step: must be between 1"),
        ("deepseek-v3", {"kv_lora_rank": ABSENT}, "kv_lora_rank: missing"),
        (
            "deepseek-v3",
            {"num_nextn_predict_layers": -1},
            "num_nextn_predict_layers: must be between 0 and 100000",
        ),
        ("deepseek-v3", {"moe_layer_freq": [1, 0]}, "moe_layer_freq: must be an integer"),
        (
            "nemotron-h-8B",
            {"hybrid_override_pattern": "MX"},
            "hybrid_override_pattern: has 2 entries for num_hidden",
        ),
        (
            "nemotron-h-8B",
            {"hybrid_override_pattern": "MX", "num_hidden_layers": 2},
            "hybrid_override_pattern: entry 1 must be one of M - * E #, not 'X'",
        ),
        (
            "nemotron-h-8B",
            {"hybrid_override_pattern": ABSENT},
            "hybrid_override_pattern: missing (or layers_block",
        ),
        ("nemotron-h-8B", {"n_groups": 7}, "n_groups: 7 must divide mamba_num_heads 128"),
        (
            "nemotron-h-8B",
            {"num_nextn_predict_layers": 1},
            "num_nextn_predict_layers: token prediction of nemotron",
        ),
        (
            "jamba-52B",
            {"num_experts": ABSENT, "moe_router_topk": ABSENT},
            "num_experts_per_tok: missing (or moe_rou",
        ),
        ("jamba-52B", {"moe_router_topk": 17}, "moe_router_topk: must be between 1 and 16, not 17"),
    ],
)
def test_configs(tmp_path: Path, example: str, changes: dict[str, Any], expected: str) -> None:
    path = write(tmp_path, f"configs/{example}", changes)
    assert complaint(path).startswith(expected)


def test_unknown_family_lists_the_supported(tmp_path: Path) -> None:
    path = write(tmp_path, "configs/llama3-8B", {"model_type": "gpt2"})
    assert complaint(path) == (
        "model_type: 'gpt2' is not supported; supported are deepseek_v3, gemma2, gemma3, gemma3_text, jamba, "
        "llama, nemotron_h, qwen3_moe"
    )
    path = write(tmp_path, "configs/jamba-52B", {"architectures": ["GPT2LMHeadModel"]})
    assert complaint(path).startswith(
        "architectures: 'GPT2LMHeadModel' is not supported; supported are deepseek_v3"
    )
    path = write(tmp_path, "configs/jamba-52B", {"architectures": []})
    assert "supported are" in complaint(path)


@pytest.mark.parametrize("text", ["[]", "3", "{}", '{"layers": []}', "null"])
def test_other_files_say_what_is_expected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    assert complaint(path) == (
        "expected a model graph (octoplan.model/1), a Hugging Face config.json (with model_type), "
        "or a timing table (with pattern and forward_ms)"
    )


def test_files_that_are_missing_broken_or_another_format(tmp_path: Path) -> None:
    assert complaint(tmp_path / "nowhere.json") == "no such file"
    (tmp_path / "broken.json").write_text("{")
    assert complaint(tmp_path / "broken.json").startswith("is not valid JSON")
    (tmp_path / "plan.json").write_text('{"format": "octoplan.plan/1"}')
    assert complaint(tmp_path / "plan.json").startswith("format: 'octoplan.plan/1' is not supported")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"pattern": ""}, "pattern: must be a non-empty string"),
        ({"pattern": "EM?L"}, "pattern: symbol 2 is '?'; known are E M - * # T L"),
        ({"pattern": "EMEL"}, "pattern: E (embedding) may stand first only"),
        ({"pattern": "ELM"}, "pattern: E (embedding) may stand first only, and L (head) last only"),
        ({"pattern": "M" * 100_001}, "pattern: has 100001 layers; at most 100000"),
        ({"pattern": ABSENT}, "pattern: missing"),
        ({"forward_ms": ABSENT}, "forward_ms: missing"),
        ({"weight_ms/M": ABSENT}, "weight_ms.M: missing"),
        ({"backward_ms/-": -0.1}, "backward_ms.-: must be between 0 and 1000000000 milliseconds, not -0.1"),
        ({"backward_ms/-": 10**400}, "backward_ms.-: must be between 0 and 1000000000 milliseconds"),
        ({"forward_ms/L": "fast"}, "forward_ms.L: must be a number of milliseconds, not 'fast'"),
        ({"sequence_length": -4}, "sequence_length: must be between 1 and"),
        ({"name": 4}, "name: must be a non-empty string, not 4"),
    ],
)
def test_tables(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    path = write(tmp_path, "profiles/nemotron-nano-v2-9B", changes)
    assert complaint(path).startswith(expected)


def test_nan_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "nan.json"
    path.write_text('{"pattern": "M", "forward_ms": {"M": NaN}}')
    assert complaint(path) == "NaN is not allowed; numbers must be finite"


@pytest.mark.parametrize(
    ("config", "changes", "expected"),
    [
        ("nemotron-h-8B", {}, "pattern: layer 8 is M (mamba2), but layers.7 in"),
        ("llama3-8B", {}, "pattern: layer 1 is M (mamba2), but layers.0.attention in"),
        ("nemotron-nano-v2-9B", {"pattern": "EM-"}, "pattern: has 3 layers, but"),
    ],
)
def test_a_config_of_another_model(
    tmp_path: Path, config: str, changes: dict[str, Any], expected: str
) -> None:
    path = write(tmp_path, "profiles/nemotron-nano-v2-9B", changes)
    options = ImportOptions(config=EXAMPLES / "configs" / f"{config}.json")
    assert complaint(path, options).startswith(expected)


def test_a_config_that_is_none(tmp_path: Path) -> None:
    path, config = EXAMPLES / "profiles" / "llama3-8B.json", tmp_path / "list.json"
    config.write_text("[]")
    with pytest.raises(InputError, match=r"list\.json: expected a Hugging Face"):
        import_model(path, ImportOptions(config=config))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (ImportOptions(sequence_length=0), "sequence_length: must be between 1 and"),
        (ImportOptions(micro_batch_size=-1), "micro_batch_size: must be between 1 and"),
        (ImportOptions(data_parallel=0), "data_parallel: must be between 1 and"),
        (ImportOptions(tensor_parallel=10**10), "tensor_parallel: must be between 1 and"),
        (
            ImportOptions(tensor_parallel=3),
            "tensor_parallel: 3 does not divide num_attention_heads 32; choose a",
        ),
        (
            ImportOptions(tensor_parallel=64),
            "tensor_parallel: 64 does not divide num_attention_heads 32; choose a",
        ),
        (ImportOptions(efficiency=0.0), "efficiency: must be above 0 and at most 1, not 0.0"),
        (ImportOptions(efficiency=float("nan")), "efficiency: must be above 0 and at most 1"),
        (ImportOptions(config=Path("x.json")), "is a config itself; config goes with a timing table"),
    ],
)
def test_options_of_a_config(options: ImportOptions, expected: str) -> None:
    assert complaint(EXAMPLES / "configs" / "llama3-8B.json", options).startswith(expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ImportOptions(sequence_length=8192),
            "sequence_length: the times are measured at 4096; 8192 needs another",
        ),
        (
            ImportOptions(micro_batch_size=2),
            "micro_batch_size: the times are measured at 1; 2 needs another table",
        ),
        (ImportOptions(efficiency=0.5), "efficiency: changes nothing"),
        (ImportOptions(granularity="sublayer"), "granularity: sublayer cannot cut T"),
        (ImportOptions(tensor_parallel=2), "tensor_parallel: a table has no byte counts to shard"),
        (ImportOptions(data_parallel=2), "data_parallel: a table has no byte counts to shard"),
    ],
)
def test_options_of_a_table(options: ImportOptions, expected: str) -> None:
    assert complaint(EXAMPLES / "profiles" / "llama3-8B.json", options).startswith(expected)


@pytest.mark.parametrize(
    "options",
    [
        ImportOptions(sequence_length=128),
        ImportOptions(tensor_parallel=2),
        ImportOptions(data_parallel=2),
        ImportOptions(granularity="sublayer"),
        ImportOptions(efficiency=0.5),
        ImportOptions(config=Path("x.json")),
    ],
)
def test_a_model_graph_is_taken_as_it_is(tmp_path: Path, options: ImportOptions) -> None:
    graph = import_model(EXAMPLES / "profiles" / "llama3-8B.json")
    path = tmp_path / "model.json"
    path.write_text(json.dumps(graph.to_document()))
    assert (
        import_model(path)
        == import_model(path, ImportOptions(sequence_length=4096, micro_batch_size=1))
        == graph
    )
    assert complaint(path, options).endswith("a model graph is taken as it is; leave the option out")


def test_a_table_measured_anywhere_takes_sizes_from_the_options(tmp_path: Path) -> None:
    sizes = {"sequence_length": ABSENT, "micro_batch_size": ABSENT}
    path = write(tmp_path, "profiles/llama3-8B", sizes)
    config = EXAMPLES / "configs" / "llama3-8B.json"
    assert import_model(path).sequence_length is None
    assert complaint(path, ImportOptions(config=config)).startswith("sequence_length: missing")
    graph = import_model(path, ImportOptions(config=config, sequence_length=128, micro_batch_size=2))
    assert graph.layers[0].output_bytes == 2 * 128 * 2 * 4096
