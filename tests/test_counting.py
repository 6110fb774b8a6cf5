"""Work that is not done: tokens that need not be counted, an index that is not printed."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrag_local.extraction.extract import Extractor
from graphrag_local.extraction.ground import passage_of
from graphrag_local.pipeline import Built
from graphrag_local.prompting import Message, load_all
from graphrag_local.settings import ExtractionSettings
from graphrag_local.tokens import REPLY_TOKENS, TURN_TOKENS, count_messages, fits
from tests.fakes import Bytes, chunk_of, model_of


class Noted(Bytes):
    """A tokenizer that remembers what it counted."""

    def __init__(self):
        self.counted = []

    def count(self, text):
        """Bytes of a text."""
        self.counted.append(text)
        return super().count(text)


@given(text=st.text(max_size=40), tokens=st.integers(min_value=0, max_value=200))
def test_a_chat_fits_as_its_count_says(text, tokens):
    """Whether a chat fits is the same with and without counting, for the tokenizer that needs the most tokens of all."""
    messages = (Message(role="user", content=text),)

    assert fits(Bytes(), messages, tokens) == (count_messages(Bytes(), messages) <= tokens)


@pytest.mark.parametrize(("room", "counts"), [(0, False), (-1, True)])
def test_a_chat_is_counted_only_near_the_limit(room, counts):
    """A chat whose bytes fit is not counted, since a token is a byte at least; with one token less it is."""
    counter = Noted()

    assert fits(counter, (Message(role="user", content="lock " * 40),), REPLY_TOKENS + TURN_TOKENS + 200 + room) is not counts
    assert bool(counter.counted) is counts


def test_a_chunk_in_a_roomy_window_costs_no_counting():
    """The request about an ordinary chunk is made without counting any token when the window is large."""
    counter, prompts = Noted(), load_all()
    model = model_of(lambda _: "", form="grammar", window=32_768, counter=counter)
    extractor = Extractor(model=model, prompt=prompts["extract"], glean_prompt=prompts["glean"], settings=ExtractionSettings())

    extractor.request(passage_of(chunk_of("The keeper of Pike Lock told the Lorne Canal Trust that the barge was late. " * 30)))

    assert counter.counted == []


def test_what_was_built_is_not_printed_with_its_index():
    """The text form of a build leaves the index out: asyncio prints the result of its main task when it ends."""
    built = Built(**{field.name: field.name.upper() for field in fields(Built)})

    assert "CHANGES" in repr(built)
    assert "SNAPSHOT" not in repr(built)
