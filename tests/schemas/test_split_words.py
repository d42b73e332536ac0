"""Many words at once give what one by one gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octoplan_schemas import InputError, parse_word
from octoplan_schemas.op_words import split_words

texts = st.lists(
    st.from_regex(r"[0-9]{1,2}(F|I|W|B|SEND_F|RECV_F|SEND_B|RECV_B)[0-9]{1,2}(@[0-9])?", fullmatch=True)
    | st.sampled_from(
        ["2F0", "1SEND_F0@4", "2F0\n2F1", "", "\n", "2F0\n", "2F0 ", "x", "1SEND_F0@0", "\u0662F0"]
    )
)


@given(texts)
def test_as_one_by_one(words: list[str]) -> None:
    try:
        expected = [parse_word(word) for word in words]
    except InputError as problem:
        message = str(problem)
        with pytest.raises(InputError) as caught:
            split_words(words)
        assert str(caught.value) == message
        return
    found = [
        (int(stage), kind, int(microbatch), int(peer) if peer else None)
        for stage, kind, microbatch, peer in split_words(words)
    ]
    assert found == expected


def test_a_line_break_does_not_make_two_words() -> None:
    """Three lines in two words, of which two are sound: the count alone would not tell."""
    with pytest.raises(InputError, match="2F0"):
        split_words(["2F0\n2F1", "x"])
