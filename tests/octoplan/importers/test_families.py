"""What each family's fields mean for layers, kinds, windows, ties and skips."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from octoplan.cost_model import Architecture, Part
from octoplan.cost_model.parts import Attention, Experts, FeedForward, LatentAttention, Mamba, Mamba2
from octoplan.importers import ImportOptions, import_model
from octoplan.importers.config_source import config_architecture
from octoplan.importers.options import Granularity

CONFIGS = Path(__file__).parents[3] / "examples" / "configs"


def read(name: str, granularity: Granularity = "block", **changes: Any) -> Architecture:
    document = json.loads((CONFIGS / f"{name}.json").read_text())
    document.get("text_config", document).update(changes)
    return config_architecture(document, Path("test.json"), granularity)


def kinds(architecture: Architecture) -> list[str]:
    return [layer.kind for layer in architecture.layers]


def parts(architecture: Architecture, kind: type[Part]) -> list[Any]:
    return [part for layer in architecture.layers for part in layer.parts if isinstance(part, kind)]


def test_llama_blocks_and_sublayers() -> None:
    assert kinds(read("llama3-8B")) == ["embedding", *["transformer"] * 32, "lm_head"]
    cut = read("llama3-8B", "sublayer")
    assert kinds(cut) == ["embedding", *["attention", "mlp"] * 32, "lm_head"]
    names = [layer.name for layer in cut.layers]
    assert names[:3] == ["embedding", "layers.0.attention", "layers.0.mlp"]
    assert names[-2:] == ["layers.31.mlp", "lm_head"]
    assert cut.tied == ()


def test_llama_defaults() -> None:
    architecture = read("llama3-8B", num_key_value_heads=None, head_dim=64)
    (attention,) = set(parts(architecture, Attention))
    assert (attention.kv_heads, attention.head_dim, attention.bias) == (32, 64, False)


def test_gemma2_alternates_and_ties() -> None:
    architecture = read("gemma2-27B", "sublayer")
    windows = [part.window for part in parts(architecture, Attention)]
    assert windows == [4096, None] * 23
    assert kinds(architecture)[1:5] == ["local_attention", "mlp", "attention", "mlp"]
    assert architecture.layers[1].name == "layers.0.attention"
    assert architecture.tied == (("embedding", "lm_head"),)
    assert all(part.post_norm for part in parts(architecture, Attention) + parts(architecture, FeedForward))


def test_gemma3_is_global_every_sixth() -> None:
    windows = [part.window for part in parts(read("gemma3-27B"), Attention)]
    assert [index for index, window in enumerate(windows) if window is None] == list(range(5, 62, 6))
    assert set(windows) == {None, 1024}


def test_gemma3_layer_types_win_over_the_pattern() -> None:
    types = ["full_attention", "sliding_attention", "sliding_attention"]
    architecture = read("gemma3-27B", layer_types=types, num_hidden_layers=3)
    assert [part.window for part in parts(architecture, Attention)] == [None, 1024, 1024]


def test_gemma3_files_leave_defaults_out() -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    architecture = config_architecture({"model_type": "gemma3", "text_config": text}, Path("x.json"))
    attention = parts(architecture, Attention)[0]
    assert (attention.heads, attention.kv_heads, attention.head_dim) == (8, 4, 256)
    assert architecture.tied


def test_qwen3_sparse_layers() -> None:
    assert kinds(read("qwen3-235B-A22B"))[1:-1] == ["transformer_moe"] * 94
    mixed = read("qwen3-235B-A22B", decoder_sparse_step=2, mlp_only_layers=[3], num_hidden_layers=6)
    assert kinds(mixed)[1:-1] == [
        "transformer",
        "transformer_moe",
        "transformer",
        "transformer",
        "transformer",
        "transformer_moe",
    ]


def test_qwen3_without_experts_is_dense() -> None:
    assert not parts(read("qwen3-235B-A22B", num_experts=0), Experts)


def test_deepseek_dense_then_sparse() -> None:
    architecture = read("deepseek-v3", "sublayer")
    assert kinds(architecture)[1:-2] == ["attention", "mlp"] * 3 + ["attention", "moe"] * 58
    experts = parts(architecture, Experts)[0]
    assert (experts.num_experts, experts.top_k, experts.shared_size) == (256, 8, 2048)
    every_fourth = read("deepseek-v3", moe_layer_freq=4, num_hidden_layers=10, num_nextn_predict_layers=0)
    sparse = [index - 1 for index, kind in enumerate(kinds(every_fourth)) if kind == "transformer_moe"]
    assert sparse == [4, 8]


def test_deepseek_full_rank_queries() -> None:
    (attention,) = set(parts(read("deepseek-v3", q_lora_rank=None), LatentAttention))
    assert attention.q_rank is None


def test_deepseek_predicts_more_tokens_from_the_embedding(tmp_path: Path) -> None:
    document = json.loads((CONFIGS / "deepseek-v3.json").read_text()) | {"num_nextn_predict_layers": 2}
    path = tmp_path / "two.json"
    path.write_text(json.dumps(document))
    graph = import_model(path, ImportOptions(sequence_length=128))
    assert [layer.kind for layer in graph.layers[-3:]] == ["mtp", "mtp", "lm_head"]
    tensor = 128 * 7168 * 2
    assert [(skip.from_layer, skip.to_layer, skip.bytes) for skip in graph.skips] == [
        ("embedding", "mtp.0", tensor),
        ("embedding", "mtp.1", tensor),
    ]
    # The head computes the losses of the model and of both predictions: their states go along.
    assert [layer.output_bytes for layer in graph.layers[-4:]] == [tensor, 2 * tensor, 3 * tensor, 0]
    path.write_text(json.dumps(document | {"num_nextn_predict_layers": 0}))
    plain = import_model(path, ImportOptions(sequence_length=128))
    head, plain_head = graph.layers[-1], plain.layers[-1]
    assert plain.skips == ()
    assert 2.9 < head.activation_bytes / plain_head.activation_bytes < 3.1
    assert head.state_bytes == plain_head.state_bytes


def test_nemotron_patterns_and_lists_agree() -> None:
    pattern = read("nemotron-nano-v2-9B", hybrid_override_pattern="M-*E", num_hidden_layers=4, **MOE)
    types = ["mamba", "mlp", "attention", "moe"]
    for names in (types, ["linear_attention", "mlp", "full_attention", "moe"]):
        listed = read(
            "nemotron-nano-v2-9B",
            hybrid_override_pattern=None,
            layers_block_type=names,
            num_hidden_layers=4,
            **MOE,
        )
        assert listed == pattern
    assert kinds(pattern) == ["embedding", "mamba2", "mlp", "attention", "moe", "lm_head"]
    assert [layer.name for layer in pattern.layers[1:3]] == ["layers.0", "layers.1"]
    assert not parts(pattern, FeedForward)[0].gated
    assert not parts(pattern, Attention)[0].rotary


MOE = {
    "n_routed_experts": 8,
    "moe_intermediate_size": 128,
    "num_experts_per_tok": 2,
    "moe_shared_expert_intermediate_size": 256,
}


def test_jamba_pattern_has_gated_experts() -> None:
    architecture = read("jamba-52B")
    assert kinds(architecture)[1:9] == ["mamba2", "mlp", "mamba2", "moe", "mamba2", "mlp", "mamba2", "moe"]
    assert parts(architecture, Mamba2)[0].heads == 128
    experts = parts(architecture, Experts)[0]
    assert (experts.num_experts, experts.top_k, experts.expert_size, experts.gated) == (16, 2, 14336, True)


RELEASED_JAMBA: dict[str, Any] = {
    "model_type": "jamba",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "mamba_dt_rank": 256,
    "vocab_size": 65536,
}


def test_released_jamba_has_periods() -> None:
    blocks = config_architecture(RELEASED_JAMBA, Path("x.json"))
    assert kinds(blocks)[1:7] == [
        "mamba_mlp",
        "mamba_moe",
        "mamba_mlp",
        "mamba_moe",
        "transformer",
        "mamba_moe",
    ]
    cut = config_architecture(RELEASED_JAMBA, Path("x.json"), "sublayer")
    assert [layer.name for layer in cut.layers[1:5]] == [
        "layers.0.mamba",
        "layers.0.mlp",
        "layers.1.mamba",
        "layers.1.moe",
    ]
    assert len(parts(cut, Mamba)) == 28
    assert len(parts(cut, Experts)) == 16


def test_released_jamba_with_a_list_of_mixers() -> None:
    types = ["attention" if index % 8 == 4 else "mamba" for index in range(32)]
    listed = config_architecture({**RELEASED_JAMBA, "layers_block_type": types}, Path("x.json"))
    assert listed == config_architecture(RELEASED_JAMBA, Path("x.json"))


def test_jamba_with_a_list_of_single_layers() -> None:
    document = json.loads((CONFIGS / "jamba-52B.json").read_text())
    names = {"M": "mamba", "-": "mlp", "*": "attention", "#": "moe"}
    types = [names[symbol] for symbol in document.pop("hybrid_override_pattern")]
    assert config_architecture({**document, "layers_block_type": types}, Path("test.json")) == read(
        "jamba-52B"
    )


def test_config_json_is_named_by_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text((CONFIGS / "llama3-8B.json").read_text())
    assert import_model(folder / "config.json").name == "my-model"
