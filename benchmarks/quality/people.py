"""Who and which places are found by name in novels that somebody marked, and which questions are taken for
ones about a whole book. No model.

    python -m benchmarks.people --data FOLDER [--save people]

FOLDER holds litbank/ (2,000 words each of LitBank's novels with every mention of a person or a place;
Bamman, Lewke and Mansoor 2020) and reading/ (questions of SQuAD 2.0, FairytaleQA, QAMR and StorySparkQA). The
weights of core/evidence/names.py and places.py were chosen on every other novel in the order of their files;
the others judge them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.lib.results import Table, save_result
from core.evidence.names import names, names_and_others
from core.evidence.places import places
from core.text.questions import asked_of_whole

PLACE_KINDS = ("PROP_GPE", "PROP_LOC", "PROP_FAC")
ASKED = ("squad2", "fairytaleqa-train", "fairytaleqa-val", "qamr", "storyspark-train")
Span = tuple[int, int]


def marked_mentions(annotations: Path) -> tuple[list[Span], list[Span]]:
    """The mentions of persons by a proper name, and all mentions of persons but pronouns, of a brat file."""
    proper = annotated_spans(annotations, ("PROP_PER",))
    return proper, annotated_spans(annotations, ("PROP_PER", "NOM_PER"))


def annotated_spans(annotations: Path, kinds: Sequence[str]) -> list[Span]:
    """The mentions of these kinds of a brat file."""
    spans = []
    for line in annotations.read_text("utf-8").splitlines():
        if line.startswith("T"):
            kind, start, end = line.split("\t")[1].split()
            spans += [(int(start), int(end))] if kind in kinds else []
    return spans


def touching(spans: Sequence[Span], others: Sequence[Span]) -> int:
    """How many of `spans` have a character in common with one of the others."""
    return sum(any(start < right and left < end for left, right in others) for start, end in spans)


def judged(files: Sequence[Path]) -> dict[str, int]:
    """Counts over the novels."""
    counts = {"novels": 0, "names": 0, "names_found": 0, "found": 0, "found_names": 0, "found_persons": 0}
    for path in files:
        proper, persons = marked_mentions(path)
        found = [(one.start, one.end) for one in names(path.with_suffix(".txt").read_text("utf-8"))]
        counts["novels"] += 1
        counts["names"] += len(proper)
        counts["names_found"] += touching(proper, found)
        counts["found"] += len(found)
        counts["found_names"] += touching(found, proper)
        counts["found_persons"] += touching(found, persons)
    return counts


def judged_places(files: Sequence[Path]) -> dict[str, int]:
    """Counts over the novels, of places."""
    counts = {"novels": 0, "names": 0, "names_found": 0, "found": 0, "found_names": 0}
    for path in files:
        proper = annotated_spans(path, PLACE_KINDS)
        text = path.with_suffix(".txt").read_text("utf-8")
        found = [span for one in places(text, names_and_others(text)[1]) for span in one.mentions]
        counts["novels"] += 1
        counts["names"] += len(proper)
        counts["names_found"] += touching(proper, found)
        counts["found"] += len(found)
        counts["found_names"] += touching(found, proper)
    return counts


def questions(path: Path) -> Iterator[str]:
    """The questions of a file of lines."""
    for line in path.read_text("utf-8").splitlines():
        yield from (one["question"] for one in json.loads(line)["questions"])


def people_table(results: dict[str, dict[str, int]]) -> Table:
    """One row a half of the novels."""
    rows = [
        (
            name,
            one["novels"],
            one["names"],
            f"{one['found_names'] / one['found']:.3f}",
            f"{one['names_found'] / one['names']:.3f}",
            f"{one['found_persons'] / one['found']:.3f}",
        )
        for name, one in results.items()
    ]
    return Table(
        "People found by name in novels (LitBank)",
        ("novels", "number", "marked names", "precision", "recall", "a person's, named or not"),
        tuple(rows),
        (
            "A mention counts as found where both have a character in common. In the last column one that is "
            "marked as a person by a common noun (the Ayah) counts, too.",
        ),
    )


def places_table(results: dict[str, dict[str, int]]) -> Table:
    """One row a half of the novels."""
    rows = [
        (
            name,
            one["novels"],
            one["names"],
            f"{one['found_names'] / max(1, one['found']):.3f}",
            f"{one['names_found'] / max(1, one['names']):.3f}",
        )
        for name, one in results.items()
    ]
    return Table(
        "Places found by name in novels (LitBank)",
        ("novels", "number", "marked names", "precision", "recall"),
        tuple(rows),
        ("Towns, countries, rivers and buildings with a proper name. Counted as people are.",),
    )


def asked_table(taken: dict[str, tuple[int, list[str]]]) -> Table:
    """One row a collection of questions."""
    rows = tuple((name, count, len(found)) for name, (count, found) in taken.items())
    notes = ("None of these was asked about a whole book.",)
    columns = ("questions", "number", "taken for one about the whole")
    return Table("Questions about passages, taken for ones about a book", columns, rows, notes)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    given = parser.parse_args()
    files = sorted((given.data / "litbank").glob("*.ann"))
    halves = {"that the weights were chosen on": files[::2], "that judge them": files[1::2]}
    results = {name: judged(half) for name, half in halves.items()}
    found_places = {name: judged_places(half) for name, half in halves.items()}
    taken = {}
    for name in ASKED:
        asked = list(questions(given.data / "reading" / f"{name}.jsonl"))
        taken[name] = (len(asked), [one for one in asked if asked_of_whole(one)])
    tables = (people_table(results), places_table(found_places), asked_table(taken))
    for shown in tables:
        for row in (shown.columns, *shown.rows):
            print("  ".join(map(str, row)))
    details = {
        "people": results,
        "places": found_places,
        "taken": {name: found for name, (_count, found) in taken.items()},
    }
    if given.save:
        save_result(given.save, tables, details=details)
    print(json.dumps(details))


if __name__ == "__main__":
    main()
