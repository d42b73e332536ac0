"""Public names load from where they are defined."""

from __future__ import annotations

import importlib

import pytest

import octoplan_runtime


@pytest.mark.parametrize("name", octoplan_runtime.__all__)
def test_every_public_name_is_there(name):
    home = importlib.import_module(f"octoplan_runtime.{octoplan_runtime._HOMES[name]}")
    assert getattr(octoplan_runtime, name) is getattr(home, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = octoplan_runtime.nothing
