"""Parameters and flops against what nobody here wrote: transformers' classes and torch's flop counter.

The models stand on the meta device, so that even the largest costs neither memory nor time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from octoplan.cost_model import Architecture, Workload, forward_flops, parameter_count
from octoplan.importers.config_source import config_architecture

CONFIGS = Path(__file__).parents[3] / "examples" / "configs"

#: Totals that the models' makers publish or that their checkpoints hold.
KNOWN_TOTALS = {
    "llama2-70B": 68_976_648_192,
    "llama3-8B": 8_030_261_248,
    "llama3-70B": 70_553_706_496,
    "gemma2-27B": 27_227_128_320,
    "gemma3-27B": 27_009_346_304,
    "qwen3-235B-A22B": 235_093_634_560,
    "deepseek-v3": 671_026_404_352,
    "nemotron-nano-v2-9B": 8_888_227_328,
    "nemotron-h-4B": None,
    "nemotron-h-8B": None,
    "nemotron-h-56B": None,
}


def read(name: str, **changes: Any) -> dict[str, Any]:
    """Return an example's config with changes, in ``text_config`` where it has one; without MTP."""
    document = json.loads((CONFIGS / f"{name}.json").read_text())
    document.get("text_config", document).update(changes)
    if "num_nextn_predict_layers" in document:
        document["num_nextn_predict_layers"] = 0
    return document


def build(document: dict[str, Any]) -> torch.nn.Module:
    """Build the transformers model of a config on the meta device."""
    fields = {**document, **document.get("text_config", {})}
    fields.pop("torch_dtype", None)
    fields.pop("text_config", None)
    if "attention_head_dim" in fields:
        fields["head_dim"] = fields.pop("attention_head_dim")
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="eager"
        )


def ours(document: dict[str, Any]) -> Architecture:
    return config_architecture(document, Path("test.json"))


def count_flops(model: torch.nn.Module, workload: Workload, masks: tuple[str, ...]) -> tuple[int, int]:
    """Return torch's forward and backward flops, with an explicit mask and positions."""
    batch, length = workload.micro_batch_size, workload.sequence_length
    mask = torch.zeros(batch, 1, length, length, dtype=torch.bfloat16, device="meta")
    with FlopCounterMode(display=False) as forward:
        logits = model(
            input_ids=torch.zeros(batch, length, dtype=torch.long, device="meta"),
            position_ids=torch.arange(length, device="meta").expand(batch, length),
            attention_mask=dict.fromkeys(masks, mask) if masks else mask,
            use_cache=False,
        ).logits
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("name", KNOWN_TOTALS)
def test_parameters_equal_at_full_size(name: str) -> None:
    document = read(name)
    expected = sum(parameter.numel() for parameter in build(document).parameters())
    assert parameter_count(ours(document)) == expected
    assert KNOWN_TOTALS[name] in (None, expected)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama3-8B", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
        ("deepseek-v3", {"q_lora_rank": None, "n_shared_experts": 2, "num_hidden_layers": 5}),
        ("deepseek-v3", {"attention_bias": True, "num_hidden_layers": 4}),
        ("gemma2-27B", {"attention_bias": True, "num_hidden_layers": 3}),
        ("qwen3-235B-A22B", {"mlp_only_layers": [1], "decoder_sparse_step": 2, "num_hidden_layers": 6}),
        (
            "nemotron-h-8B",
            {
                "hybrid_override_pattern": "ME*-",
                "num_hidden_layers": 4,
                "n_routed_experts": 8,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 512,
                "moe_shared_expert_intermediate_size": 768,
                "moe_latent_size": 256,
                "mlp_bias": True,
                "use_bias": True,
                "use_conv_bias": False,
            },
        ),
    ],
)
def test_parameters_equal_with_options(name: str, changes: dict[str, Any]) -> None:
    document = read(name, **changes)
    expected = sum(parameter.numel() for parameter in build(document).parameters())
    assert parameter_count(ours(document)) == expected


@pytest.mark.parametrize(
    "changes", [{}, {"attn_layer_period": 3, "attn_layer_offset": 1, "mamba_dt_rank": 40}]
)
def test_parameters_equal_for_released_jamba(changes: dict[str, Any]) -> None:
    fields = {
        "model_type": "jamba",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 9,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": 1000,
        **changes,
    }
    expected = sum(parameter.numel() for parameter in build(fields).parameters())
    assert parameter_count(ours(fields)) == expected


@pytest.mark.parametrize(
    ("name", "changes", "masks"),
    [
        ("llama3-8B", {}, ()),
        ("gemma2-27B", {}, ("full_attention", "sliding_attention")),
        ("gemma3-27B", {}, ("full_attention", "sliding_attention")),
        # All layers dense: torch does not count grouped expert products.
        ("deepseek-v3", {"first_k_dense_replace": 9}, ()),
    ],
)
def test_flops_equal_when_every_pair_is_scored(
    name: str, changes: dict[str, Any], masks: tuple[str, ...]
) -> None:
    document = read(name, num_hidden_layers=2, **changes)
    workload = Workload(sequence_length=1024, micro_batch_size=2, attention="full")
    forward, backward = count_flops(build(document), workload, masks)
    operators = [op for layer in ours(document).layers for op in layer.operators(workload)]
    assert forward_flops(ours(document), workload) == pytest.approx(forward, rel=0.02)
    # Flash attention computes Q K^T once more in its backward; the eager one has stored it.
    recomputed = sum(_score_product(document, workload) for op in operators if op.name == "attention_scores")
    ours_backward = sum(op.backward_input.flops + op.backward_weight.flops for op in operators)
    assert ours_backward - recomputed == pytest.approx(backward, rel=0.02)


def _score_product(document: dict[str, Any], workload: Workload) -> int:
    fields = document.get("text_config", document)
    head = fields.get("head_dim", fields["hidden_size"] // fields["num_attention_heads"])
    if "qk_nope_head_dim" in fields:
        head = fields["qk_nope_head_dim"] + fields["qk_rope_head_dim"]
    pairs = workload.micro_batch_size * workload.sequence_length**2
    return 2 * pairs * int(fields["num_attention_heads"]) * int(head)
