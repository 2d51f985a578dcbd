"""Who of one text occurs in another: by the name alone, and rather nobody than somebody else."""

from __future__ import annotations

import pytest

from core.evidence.occurrences import Occurrence
from core.evidence.same_names import SameNames


def occurring(name: str, *forms: str, kind: str = "person", times: int = 1) -> Occurrence:
    start = sum(map(ord, name))
    return Occurrence(
        kind, name, forms or (name,), tuple((start + at, start + at + 1) for at in range(times))
    )


def named(one: Occurrence, *others: Occurrence) -> list[str]:
    return [other.name for other in SameNames(others).of(one)]


PEG, OBED = occurring("Peg Marsh", "Peg", "Peg Marsh"), occurring("Obed Marsh", "Obed", "Marsh", times=9)
ISAAC = occurring("Isaac Rudd", "Mr. Rudd", "Isaac", "Isaac Rudd")


@pytest.mark.parametrize(
    ("one", "others", "found"),
    [
        (PEG, [OBED, PEG], ["Peg Marsh"]),
        (PEG, [OBED], []),  # of one family
        (occurring("Peg"), [OBED, PEG], ["Peg Marsh"]),
        (occurring("Marsh"), [PEG, OBED], ["Obed Marsh", "Peg Marsh"]),  # whichever it is
        (occurring("Mr. Rudd"), [ISAAC], ["Isaac Rudd"]),
        (occurring("Mrs. Rudd"), [ISAAC], []),
        (occurring("Mrs. Rudd"), [occurring("Hannah Rudd")], []),  # nobody says that she is married
        (ISAAC, [occurring("Rudd")], ["Rudd"]),
        (ISAAC, [occurring("Mrs. Rudd"), occurring("Mr. Rudd")], ["Mr. Rudd"]),
        (occurring("the Inspector"), [occurring("the Inspector"), ISAAC], []),
        (ISAAC, [occurring("the Inspector")], []),
        (
            occurring("Saltby", kind="place"),
            [occurring("SALTBY", kind="term"), occurring("Saltby")],
            ["SALTBY"],
        ),
    ],
)
def test_names_are_known_again(one, others, found):
    assert named(one, *others) == found
