"""Op words: what is written is what is read, and nothing else is read."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octoplan_schemas import InputError, OpWord, parse_word, transfer_words

indices = st.integers(0, 999_999_999)


@given(indices, st.sampled_from("FIWB"), indices)
def test_compute_words_round_trip(stage: int, kind: str, microbatch: int) -> None:
    text = f"{stage}{kind}{microbatch}"
    word = parse_word(text)
    assert word == OpWord(stage, kind, microbatch, None)
    assert str(word) == text
    assert word.is_compute
    assert not word.is_send


@given(indices, indices, indices, st.booleans())
def test_transfer_words_round_trip(one: int, other: int, microbatch: int, is_gradient: bool) -> None:
    if one == other:
        return
    early, late = sorted((one, other))
    source, destination, direction = (late, early, "B") if is_gradient else (early, late, "F")
    send_text, recv_text = transfer_words(source, destination, direction, microbatch)
    send, recv = parse_word(send_text), parse_word(recv_text)
    assert (str(send), str(recv)) == (send_text, recv_text)
    assert (send.stage, send.kind, send.microbatch) == (source, f"SEND_{direction}", microbatch)
    assert (recv.stage, recv.kind, recv.microbatch) == (destination, f"RECV_{direction}", microbatch)
    assert (send.other_stage, recv.other_stage) == (destination, source)
    assert (send.is_send, recv.is_send, send.is_compute, recv.is_compute) == (True, False, False, False)
    assert ("@" in send_text) == ("@" in recv_text) == (late - early > 1)


def test_words_of_the_contract() -> None:
    assert parse_word("2F0") == (2, "F", 0, None)
    assert parse_word("1SEND_F0").other_stage == 2
    assert parse_word("2RECV_F0").other_stage == 1
    assert parse_word("2SEND_B7").other_stage == 1
    assert parse_word("1RECV_B7").other_stage == 2
    assert parse_word("1SEND_F0@4").other_stage == 4
    assert parse_word("4RECV_F0@1").other_stage == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "F",
        "2F",
        "F0",
        "2f0",
        "2F0 ",
        " 2F0",
        "2F0\n",
        "02F0",
        "2F00",
        "-1F0",
        "+1F0",
        "2F-1",
        "2 F 0",
        "2F1.0",
        "1_0F0",
        "2X0",
        "2SEND0",
        "2SEND_I0",
        "2send_f0",
        "2F0@3",
        "2SEND_F0@",
        "2SEND_F0@x",
        "2SEND_F0@3@4",
        "\u0661F0",
        "2F\u00b2",
        "9999999999F0",
        "2F0,2F1",
        # The stage after @ must lie on the side that the direction says.
        "2SEND_F0@1",
        "2SEND_F0@2",
        "2RECV_F0@3",
        "2SEND_B0@3",
        "2RECV_B0@1",
        "2RECV_B0@2",
    ],
)
def test_junk_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_word(text)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="0123FIWBSENDRCV_@ ", max_size=12) | st.text(max_size=8))
def test_only_words_of_the_grammar_are_read(text: str) -> None:
    number = "(?:0|[1-9][0-9]{0,8})"
    grammar = f"{number}(?:[FIWB]{number}|(?:SEND|RECV)_[FB]{number}(?:@{number})?)"
    try:
        word = parse_word(text)
    except InputError:
        if re.fullmatch(grammar, text):  # right letters: then only the side of the other stage can be wrong
            assert "@" in text
        return
    assert re.fullmatch(grammar, text)
    assert str(word) == text
