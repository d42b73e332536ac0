"""Hypothesis strategies for valid documents, as parsed JSON, and for ways to spoil them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

EXAMPLE_PLAN: dict[str, Any] = {
    "format": "octoplan.plan/1",
    "model": {"name": "two-layers", "sha256": "..."},
    "cluster": {"name": "pair", "sha256": "..."},
    "job": {"microbatches": 1, "backward": "split", "max_stages_per_device": 1, "memory_limit": None},
    "stages": [{"id": 0, "layers": [0, 1], "rank": 0}, {"id": 1, "layers": [1, 2], "rank": 1}],
    "programs": [["0F0", "0SEND_F0", "0RECV_B0", "0B0"], ["1RECV_F0", "1F0", "1I0", "1SEND_B0", "1W0"]],
    "predicted": {
        "makespan_s": 0.006,
        "lower_bound_s": 0.006,
        "gap": 0.0,
        "bubble_fraction": 0.5,
        "ranks": [],
    },
    "provenance": {"strategy": "octoplan"},
}

EXAMPLE_LAYER: dict[str, Any] = {
    "name": "a",
    "kind": "mlp",
    "cost": {"*": {"forward_s": 1, "backward_input_s": 1.5, "backward_weight_s": 0}},
    "state_bytes": 10,
    "activation_bytes": 4,
    "weight_stash_bytes": 1,
    "workspace_bytes": 0,
    "output_bytes": 2,
}

EXAMPLE_MODEL: dict[str, Any] = {
    "format": "octoplan.model/1",
    "name": "three",
    "layers": [EXAMPLE_LAYER, {**EXAMPLE_LAYER, "name": "b"}, {**EXAMPLE_LAYER, "name": "c"}],
    "skips": [{"from": "a", "to": "c", "bytes": 5}],
    "tied": [["a", "c"]],
}

EXAMPLE_CLUSTER: dict[str, Any] = {
    "format": "octoplan.cluster/1",
    "name": "pair",
    "device_types": {
        "x": {"memory_bytes": 80, "peak_flops": 1e15, "memory_bandwidth": 3e12, "op_overhead_s": 0}
    },
    "devices": [{"name": "d0", "type": "x", "node": "n0"}, {"name": "d1", "type": "x", "node": "n1"}],
    "links": {
        "intra_node": {"latency_s": 0, "bandwidth": 1e11},
        "inter_node": {"latency_s": 1e-5, "bandwidth": 1e10},
        "pairs": [{"from": 0, "to": "d1", "latency_s": 1, "bandwidth": 2}],
    },
}

EXAMPLE_JOB: dict[str, Any] = {
    "format": "octoplan.job/1",
    "microbatches": 8,
    "memory_limit": "90%",
    "constraints": [{"pin": {"layers": ["a"], "rank": 0}}, {"boundary_after": "b"}],
}

EXAMPLE_STUDY: dict[str, Any] = {
    "format": "octoplan.study/1",
    "name": "small",
    "instances": [{"models": ["llama3-8B"], "clusters": ["h800x4"], "microbatches": [8]}],
    "methods": [{"name": "a", "solver": "dp"}],
}

EXAMPLES = {
    "model": EXAMPLE_MODEL,
    "cluster": EXAMPLE_CLUSTER,
    "plan": EXAMPLE_PLAN,
    "job": EXAMPLE_JOB,
    "study": EXAMPLE_STUDY,
}

names = st.text(min_size=1, max_size=6)
numbers = st.integers(0, 10**20) | st.floats(0, allow_nan=False, allow_infinity=False)
positives = numbers.filter(lambda number: number > 0)
counts = st.integers(1, 10**12)
ranks = st.integers(0, 9)
finite = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**25), 10**25) | finite | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def record(required: dict[str, Any], optional: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(required, optional=optional or {})


op_costs = record(dict.fromkeys(("forward_s", "backward_input_s", "backward_weight_s"), numbers))
links = record({"latency_s": numbers, "bandwidth": positives})


@st.composite
def layers(draw: st.DrawFn, name: str) -> dict[str, Any]:
    sizes = ("state_bytes", "activation_bytes", "weight_stash_bytes", "workspace_bytes", "output_bytes")
    layer = {
        "name": name,
        "kind": draw(names),
        "cost": draw(st.dictionaries(names, op_costs, min_size=1, max_size=2)),
        **{size: draw(numbers) for size in sizes},
    }
    if draw(st.booleans()):
        layer["retained_bytes"] = draw(st.sampled_from([None, 0, layer["activation_bytes"]]))
    return layer


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    layer_names = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    document: dict[str, Any] = {
        "format": draw(st.sampled_from(["octoplan.model/1", "octoplan.model/1.7"])),
        "name": draw(names),
        "layers": [draw(layers(name)) for name in layer_names],
    }
    if len(layer_names) > 2 and draw(st.booleans()):
        document["skips"] = [{"from": layer_names[0], "to": layer_names[-1], "bytes": draw(numbers)}]
    optional = record(
        {},
        {
            "tied": st.lists(st.lists(st.sampled_from(layer_names), max_size=2), max_size=2),
            "sequence_length": st.none() | counts,
            "micro_batch_size": st.none() | counts,
            "source": st.sampled_from([None, "roofline", "profile", "table"]),
        },
    )
    return {**document, **draw(optional)}


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    speeds = record(
        dict.fromkeys(("memory_bytes", "peak_flops", "memory_bandwidth"), positives)
        | {"op_overhead_s": numbers}
    )
    types = draw(st.dictionaries(names, speeds, min_size=1, max_size=2))
    devices = [
        {"name": name, "type": draw(st.sampled_from(sorted(types))), "node": draw(names)}
        for name in draw(st.lists(names, min_size=1, max_size=4, unique=True))
    ]
    document: dict[str, Any] = {
        "format": "octoplan.cluster/1",
        "name": draw(names),
        "device_types": types,
        "devices": devices,
        "links": {"intra_node": draw(links), "inter_node": draw(links)},
    }
    if len(devices) > 1 and draw(st.booleans()):
        ends = {"from": draw(st.sampled_from([0, devices[0]["name"]])), "to": devices[1]["name"]}
        document["links"]["pairs"] = [{**ends, **draw(links)}]
    return document


memory_limits = st.none() | numbers | st.sampled_from(["90%", "none", "1f1b:1.5"])
rank_predictions = record(
    {"busy_s": numbers, "peak_bytes": numbers, "state_bytes": numbers},
    {key: st.none() | numbers for key in ("idle_s", "peak_at_s", "limit_bytes")},
)
stage_costs = record(
    dict.fromkeys(
        (
            "forward_s",
            "backward_input_s",
            "backward_weight_s",
            "backward_s",
            "activation_bytes",
            "retained_bytes",
            "weight_stash_bytes",
            "workspace_bytes",
        ),
        numbers,
    )
)
both_ways = st.tuples(numbers, numbers).map(list)
edge_costs = record(
    {"from": ranks, "to": ranks, "bytes": numbers, "transfer_s": both_ways, "latency_s": both_ways}
)


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    reference = record({"name": st.text(max_size=4), "sha256": st.text(max_size=4)})
    job = record(
        {
            "microbatches": counts,
            "backward": st.sampled_from(["split", "fused"]),
            "max_stages_per_device": counts,
            "memory_limit": memory_limits,
        }
    )
    stage = record({"id": ranks, "layers": st.tuples(ranks, counts).map(list), "rank": ranks})
    predicted = record(
        {
            "makespan_s": numbers,
            "lower_bound_s": st.none() | numbers,
            "gap": st.none() | finite,
            "bubble_fraction": finite,
            "ranks": st.lists(rank_predictions, max_size=2),
        },
        {
            "binding_bound": st.none() | names,
            "stages": st.lists(stage_costs, max_size=2),
            "edges": st.lists(edge_costs, max_size=2),
        },
    )
    extra = draw(st.dictionaries(names.filter(lambda name: name != "strategy"), json_values, max_size=3))
    return {
        "format": "octoplan.plan/1",
        "model": draw(reference),
        "cluster": draw(reference),
        "job": draw(job),
        "stages": draw(st.lists(stage, min_size=1, max_size=3)),
        "programs": draw(st.lists(st.lists(st.text(max_size=4), max_size=3), min_size=1, max_size=3)),
        "predicted": draw(predicted),
        "provenance": {"strategy": draw(names), **extra},
    }


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    several = st.lists(names, min_size=2, max_size=3)
    constraint = st.one_of(
        record({"pin": record({"layers": st.lists(names, min_size=1, max_size=2), "rank": ranks})}),
        *(record({key: several}) for key in ("same_rank", "different_rank", "same_stage")),
        record({"boundary_after": names}),
        record(
            {
                "stages_per_rank": record(
                    {}, {"min": st.none() | counts, "max": counts, "equal": st.booleans()}
                )
            }
        ),
        record({"max_in_flight": record({"rank": ranks, "microbatches": counts})}),
    )
    fields = {
        "microbatches": counts,
        "strategy": names,
        "backward": st.sampled_from(["split", "fused"]),
        "max_stages_per_device": counts,
        "memory_limit": memory_limits,
        "solver": names,
        "target": st.sampled_from(["octoplan", "torch", "torchtitan", "megatron"]),
        "time_limit": numbers,
        "seed": ranks,
        "max_evaluations": counts,
    }
    optional = {key: st.none() | value for key, value in fields.items()}
    body = draw(record({}, {**optional, "constraints": st.lists(constraint, max_size=3)}))
    return {"format": "octoplan.job/1", **body}


def some(values: Any) -> Any:
    return st.lists(values, min_size=1, max_size=2)


@st.composite
def studies(draw: st.DrawFn) -> dict[str, Any]:
    seeds, many = st.integers(0, 2**31 - 1), st.integers(1, 10**6)
    safe_names = st.from_regex(r"[A-Za-z0-9][ -~]{0,20}", fullmatch=True)
    dials = record(
        {"seeds": some(seeds), "layers": some(st.integers(1, 2000)), "ranks": some(st.integers(1, 256))},
        {
            "layer_heterogeneity": some(numbers),
            "slow_share": some(st.floats(0, 1)),
            "slow_factor": some(positives),
            "tightness": some(positives),
        },
    )
    sources = record(
        {"source": names}, {"name": safe_names, "tensor_parallel": many, "config": st.none() | names}
    )
    limits = {"memory_limits": some(numbers | names)}
    grids = record(
        {"models": some(names | sources), "clusters": some(names), "microbatches": some(many)}, limits
    )
    drawn = record({"random": dials, "microbatches_per_rank": some(many)}, limits)
    dimensions = st.lists(st.sampled_from(["partition", "placement", "order"]), unique=True)
    kinds = {"strategy": names, "solver": names, "search": dimensions, "rule": st.just("octopipe")}
    method_names = draw(st.lists(safe_names, min_size=1, max_size=3, unique=True))
    methods = [
        {
            "name": name,
            kind: draw(kinds[kind]),
            "options": draw(st.dictionaries(names, json_values, max_size=2)),
        }
        for name, kind in zip(method_names, draw(st.permutations(sorted(kinds))), strict=False)
    ]
    optional = {
        "version": names,
        "description": st.text(max_size=5),
        "references": st.lists(st.sampled_from(method_names), max_size=2),
        "seeds": some(seeds),
        "repetitions": many,
        "cell": record({}, {"time_s": positives, "memory_bytes": positives}),
    }
    budget = draw(st.sampled_from([{}, {"time_limits_s": [1.5]}, {"max_evaluations": [10, 20]}]))
    required = {"name": safe_names, "instances": st.lists(grids | drawn, min_size=1, max_size=2)}
    return {"format": "octoplan.study/1", "methods": methods, **budget, **draw(record(required, optional))}


DOCUMENTS = {
    "model": models(),
    "cluster": clusters(),
    "plan": plans(),
    "job": jobs(),
    "study": studies(),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside a document, outermost first."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    """Return the value at a path."""
    for step in path:
        document = document[step]
    return document


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy with the value at a path replaced (or added)."""
    if not path:
        return value
    result = document.copy()  # only along the path: parts of the example may occur in several places
    result[path[0]] = replaced(document[path[0]], path[1:], value) if path[1:] else value
    return result


@st.composite
def spoiled(draw: st.DrawFn, document: Any) -> Any:
    """Return the document with one value replaced, removed or added; it may still be valid."""
    path = draw(st.sampled_from(list(places(document))))
    what = draw(st.sampled_from(["replace", "remove", "add"]))
    junk = draw(json_values | st.sampled_from([-1, 0, True, "", [], {}, 1.5, -0.5, "x", None]))
    if what == "remove" and path:
        parent = at(document, path[:-1]).copy()
        del parent[path[-1]]
        return replaced(document, path[:-1], parent)
    if what == "add" and isinstance(at(document, path), dict):
        return replaced(document, path, {**at(document, path), draw(names): junk})
    return replaced(document, path, junk)
