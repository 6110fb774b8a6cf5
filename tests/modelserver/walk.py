"""A valid sentence of a grammar, found by walking llguidance's matcher byte by byte.

The walk prefers the bytes of a wish (a sentence) wherever a free text allows them, then whatever ends a field, then the
letter it has taken least often, so that it leaves loops; it stops as soon as the grammar accepts.
"""

from collections import Counter

import llguidance

DELIMITERS = b'\n\t"]}),:|'
LIMIT = 4000  # bytes; a grammar that cannot end is cut here


def walk(grammar: str, wish: str) -> str:
    """A reply that a Lark grammar accepts; raises ValueError where the grammar does not compile."""
    return _walked(llguidance.LLMatcher.grammar_from_lark(grammar), wish)


def walk_regex(pattern: str, wish: str) -> str:
    """A string that a regular expression accepts as a whole."""
    return _walked(llguidance.LLMatcher.grammar_from_regex(pattern.removeprefix("^").removesuffix("$")), wish)


def _walked(grammar: str, wish: str) -> str:
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar)
    if matcher.is_error():
        raise ValueError(matcher.get_error())
    whole, out = wish.encode("utf-8"), bytearray()
    rest, taken = whole, Counter[int]()
    while len(out) < LIMIT and not matcher.is_stopped():
        allowed = {byte for byte, bias in enumerate(matcher.compute_logit_bias()[:256]) if bias}
        between_fields = rest in (whole, b"")
        if not allowed or (out and between_fields and matcher.is_accepting()):
            break
        byte, rest = _next(allowed, rest, taken)
        matcher.consume_token(byte)
        out.append(byte)
        if byte in b'\n\t"':
            rest = whole
    return out.decode("utf-8", "ignore")


def _next(allowed: set[int], rest: bytes, taken: Counter[int]) -> tuple[int, bytes]:
    """The next byte of the reply and what then remains of the wish; `taken` counts the bytes chosen for want of anything better."""
    if rest and rest[0] in allowed:
        return rest[0], rest[1:]
    for byte in DELIMITERS:
        if byte in allowed:
            return byte, rest
    byte = min(allowed, key=lambda byte: (byte <= 0x20, taken[byte], byte))
    taken[byte] += 1
    return byte, rest
