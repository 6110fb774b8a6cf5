"""Embeddings: vectors that are a pure function of the text."""

import base64
import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any


def hashed(text: str, dimension: int) -> list[float]:
    """The first bytes of the text's SHA-256 over 255; beyond 32 numbers the hash of the hash goes on."""
    block = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    data = block
    while len(data) < dimension:
        block = hashlib.sha256(block).digest()
        data += block
    return [byte / 255 for byte in data[:dimension]]


def vector(recipe: Any, text: str, dimension: int) -> list[float]:
    """The vector that a recipe gives for a text: "sha256", "sha256 of reversed text", "zero", or the numbers themselves."""
    match recipe:
        case "sha256":
            return hashed(text, dimension)
        case "sha256 of reversed text":
            return hashed(text[::-1], dimension)
        case "zero" | "zeros":
            return [0.0] * dimension
        case list():
            return [float(number) for number in recipe]
    raise ValueError(f"unknown vector recipe {recipe!r}")


def embed(texts: Sequence[str], model: Mapping[str, Any], rules: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """One vector per text. A rule `{when_text_has, vector}` (or `like`: another text) goes before the model's recipe."""
    dimension = int(model.get("dimension", 8))
    recipe = model.get("vector", "sha256")
    vectors = []
    for text in texts:
        rule = next((rule for rule in rules if rule.get("when_text_has", "") in text and ("vector" in rule or "like" in rule)), {})
        vectors.append(vector(rule.get("vector", recipe), rule.get("like", text), dimension))
    return vectors


def encoded(numbers: Sequence[float], form: str) -> list[float] | str:
    """A vector as numbers, or as base64 of little-endian float32 as OpenAI's client asks for."""
    if form != "base64":
        return list(numbers)
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode("ascii")
