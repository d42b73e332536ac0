"""Which layers feed which, and what a message carries."""

from __future__ import annotations

import pytest

from octoplan_runtime.stage_graph import MODEL_INPUT, StageEdge, StageGraph, layer_feeds
from octoplan_schemas import InputError
from tests.runtime import plans

BOUNDS = [(0, 2), (2, 3), (3, 6)]


def graph_of(skips):
    order = [(stage, "F", 0) for stage in range(3)] + [(stage, "B", 0) for stage in (2, 1, 0)]
    return StageGraph.of(plans.make_plan(BOUNDS, [0, 1, 0], order, 1, skips), skips)


def test_a_chain_hands_the_last_layers_output_to_the_next_stage():
    graph = graph_of([])
    assert graph.edges_out == ((StageEdge(0, 1, (1,)),), (StageEdge(1, 2, (2,)),), ())
    assert graph.edges_in[2] == (StageEdge(1, 2, (2,)),)
    assert [graph.exports(stage) for stage in range(3)] == [(1,), (2,), (5,)]
    assert [graph.imports(stage) for stage in range(3)] == [(MODEL_INPUT,), (1,), (2,)]


def test_a_source_layer_goes_over_an_edge_once_and_inside_a_stage_not_at_all():
    graph = graph_of([(0, 3), (0, 5), (0, 2), (3, 5)])
    assert graph.edges_out[0] == (StageEdge(0, 1, (0, 1)), StageEdge(0, 2, (0,)))
    assert graph.exports(0) == (0, 1)
    assert graph.imports(2) == (0, 2)


def test_arguments_are_the_layer_before_and_then_skips_by_ascending_source():
    assert layer_feeds(4, [(1, 3), (0, 3), (0, 2)]) == ((MODEL_INPUT,), (0,), (1, 0), (2, 0, 1))


@pytest.mark.parametrize("skip", [(2, 2), (3, 1), (0, 4), (-1, 2)])
def test_a_skip_edge_that_leads_nowhere_is_refused(skip):
    with pytest.raises(InputError, match=f"skip edge {skip[0]} -> {skip[1]}"):
        layer_feeds(4, [skip])
