"""Which of the models that fit a computer it should have, and how long its first answer takes. Pure
arithmetic on plans; no torch.

A model is recommended only if a book of 300 pages gives its first answer within FIRST_ANSWER_S: read whole,
or from passages where that takes longer. Why so: docs/decisions/0038-a-model-for-every-pc.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.model.store.catalogue import CatalogueEntry
from core.planning.costs import BOOK_TOKENS, PASSAGES
from core.planning.plan import Plan
from core.text.words import duration
from core.text.words import translated as _

FIRST_ANSWER_S = 60.0
SLOWEST_TBT_MS = 250.0  # slower than people read
FLUENT_TBT_MS = 50.0  # at the full context: an answer of 200 words in less than a quarter of a minute
FREE_LICENCE = "Apache-2.0"
SHORT_ANSWER_TOKENS = 40
SMALL_PARAMETERS = 1e9  # below, a model is for computers that run no other; by size, not measured


@dataclass(frozen=True, slots=True)
class Offer:
    """One catalogue model on this machine: its plan, or why there is none."""

    entry: CatalogueEntry
    plan: Plan | None
    reason: str
    downloaded: bool
    recommended: bool = False  # of all for this machine, whatever is downloaded


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """Expected seconds until a question about a book of 300 pages is answered, and by which way."""

    seconds: float
    from_passages: bool
    tbt_ms: float


def first_answer(plan: Plan) -> FirstAnswer:
    """The faster of reading the book whole and of asking its passages."""
    a_passage = plan.expected_passage_s + SHORT_ANSWER_TOKENS * plan.expected_passage_tbt_ms / 1e3
    passages = FirstAnswer(PASSAGES * a_passage, True, plan.expected_passage_tbt_ms)
    whole_s = plan.expected_book_s + SHORT_ANSWER_TOKENS * plan.expected_tbt_ms / 1e3
    if not reads_whole(plan) or whole_s > passages.seconds:
        return passages
    return FirstAnswer(whole_s, False, plan.expected_tbt_ms)


def times(plan: Plan) -> str:
    """Both times of a book of 300 pages, in words."""
    said = _("first answer after {first}, a 300-page book read in parts in {book}")
    if reads_whole(plan):
        said = _("first answer after {first}, a 300-page book read whole in {book}")
    first = duration(first_answer(plan).seconds)
    return said.format(first=first, book=duration(plan.expected_book_s))


def reads_whole(plan: Plan) -> bool:
    """Whether a book of 300 pages fits the context."""
    return plan.context_tokens >= BOOK_TOKENS


def best_offer(offers: Iterable[Offer], *, free: bool = False) -> Offer | None:
    """The best offer that answers soon enough: of a billion parameters or more, if any; one that reads a
    book whole before one that does not, of these one that writes fluently from all of it, then the larger,
    then the faster, then a GGUF. `free`: only models of a licence without conditions that need
    no account.
    """
    found = [offer for offer in offers if offer.plan is not None and is_swift(offer.plan)]
    found = [offer for offer in found if offer.entry.chat and (not free or is_free(offer.entry))]
    return max(found, key=_worth, default=None)


def is_free(entry: CatalogueEntry) -> bool:
    """Whether anybody may fetch and use the model without conditions."""
    return entry.licence == FREE_LICENCE and not entry.gated


def is_swift(plan: Plan) -> bool:
    """Whether it answers soon enough to be recommended."""
    answer = first_answer(plan)
    return answer.seconds <= FIRST_ANSWER_S and answer.tbt_ms <= SLOWEST_TBT_MS


def writes_fluently(plan: Plan) -> bool:
    """Whether an answer from a whole book of 300 pages comes much faster than people read."""
    return reads_whole(plan) and plan.expected_tbt_ms <= FLUENT_TBT_MS


def _worth(offer: Offer) -> tuple[bool, bool, bool, bool, int, bool, float, bool]:
    """The embedded model is a demonstration: every other is worth more. A GGUF was rounded with more care."""
    return (
        not offer.entry.embedded,
        offer.entry.shape.parameters >= SMALL_PARAMETERS,
        reads_whole(offer.plan),
        writes_fluently(offer.plan),
        offer.entry.shape.parameters,
        not offer.plan.rounded,
        -first_answer(offer.plan).seconds,
        bool(offer.entry.file),
    )
