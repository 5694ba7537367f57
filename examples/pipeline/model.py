"""A small text model: the sentence of a page whose words the page uses most. The same text gives the same words."""

from __future__ import annotations

import re
from collections import Counter

PRICE_MICROS_PER_TOKEN = 2
_WORD = re.compile(r"[a-z]+")


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def summarize(text: str) -> str:
    """The most telling sentence of a text, the first one of equals."""
    counts = Counter(words(text))
    sentences = [sentence.strip() for sentence in text.split(".") if sentence.strip()]

    def weight(sentence: str) -> float:
        found = words(sentence)
        return sum(counts[word] for word in found) / max(len(found), 1)

    return max(sentences, key=weight, default="") + "."
