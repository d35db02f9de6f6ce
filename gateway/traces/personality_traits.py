"""What a personality's character changes about what it remembers: the six traits of HEXACO as settings of the ingest.

Ashton and Lee, Empirical, Theoretical, and Practical Advantages of the HEXACO Model of Personality Structure (2007).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Category = Literal["user_preference", "episodic", "goal", "knowledge", "correction", "emotional_context", "action_item"]
ALWAYS: tuple[Category, ...] = ("user_preference", "episodic", "goal", "knowledge", "correction")

_MIDDLE = 0.5
_HIGH = 0.6
_LOW = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRules:
    """What is kept of an exchange.

    Attributes:
        threshold: facts that are less important are left out; an equal one passes.
        most: facts of one turn.
        duplicate_from: a fact this similar to one that is there is not kept again.
        categories: that are asked for.
        gains: added to the importance, by category.
        consolidate_every_turns: of one person.
        recall_chars: room for the traces that are put before the model in a turn.
        notes_sentiment: whether the feeling that goes with a fact is kept.
    """

    threshold: float = 0.4
    most: int = 3
    duplicate_from: float = 0.85
    categories: tuple[Category, ...] = ALWAYS
    gains: Mapping[Category, float] = field(default_factory=dict)
    consolidate_every_turns: int = 50
    recall_chars: int = 20_000
    notes_sentiment: bool = False


def apply_traits(base: IngestRules, traits: Mapping[str, float]) -> IngestRules:
    """The rules of a personality by its traits, each from 0 to 1; `base` holds what the configuration says."""
    high = {trait for trait, degree in traits.items() if degree > _HIGH}
    rules = _by_openness(base, traits.get("openness", _MIDDLE))
    is_conscientious = "conscientiousness" in high
    if is_conscientious:
        rules = replace(
            _gaining(rules, {"goal": 0.1, "action_item": 0.15}),
            categories=(*rules.categories, "action_item"),
            duplicate_from=0.92,
            consolidate_every_turns=min(30, rules.consolidate_every_turns),
        )
    if "agreeableness" in high:
        rules = replace(_gaining(rules, {"user_preference": 0.15}), recall_chars=rules.recall_chars * 7 // 5)
    if "emotionality" in high:
        rules = replace(_gaining(rules, {"episodic": 0.1, "emotional_context": 0.1}), notes_sentiment=True)
    if "honesty_humility" in high:
        rules = replace(_gaining(rules, {"correction": 0.2}), duplicate_from=0.85 if is_conscientious else 0.75)
    return rules


def _by_openness(rules: IngestRules, openness: float) -> IngestRules:
    if openness > _HIGH:
        return replace(
            rules,
            threshold=max(0.2, rules.threshold - 0.4 * (openness - _MIDDLE)),
            most=min(5, rules.most + 1),
            categories=(*rules.categories, "emotional_context"),
        )
    if openness < _LOW:
        return replace(
            rules,
            threshold=min(0.7, rules.threshold + 0.4 * (_MIDDLE - openness)),
            most=max(1, rules.most - 1),
        )
    return rules


def _gaining(rules: IngestRules, gains: Mapping[Category, float]) -> IngestRules:
    return replace(rules, gains={**rules.gains, **gains})
