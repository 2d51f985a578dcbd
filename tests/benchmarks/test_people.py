"""What the benchmark of names counts."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.quality.people import (
    ASKED,
    asked_table,
    judged,
    judged_places,
    main,
    marked_mentions,
    people_table,
    places_table,
    questions,
)

TEXT = "“ Come , ” said Mr. Ansell . Hannah asked Mr. Ansell who the keeper was ."
ANN = (
    "T1\tPROP_PER 16 26\tMr. Ansell\nT2\tPROP_PER 29 35\tHannah\nT3\tPROP_PER 42 52\tMr. Ansell\n"
    "T4\tNOM_PER 57 67\tthe keeper\nT5\tPRON_PER 53 56\twho\nR1\tCOREF Arg1:T1 Arg2:T3\n"
)


def made(folder: Path) -> Path:
    (folder / "litbank").mkdir()
    (folder / "reading").mkdir()
    for name in ("a", "b"):
        (folder / "litbank" / f"{name}.ann").write_text(ANN, "utf-8")
        (folder / "litbank" / f"{name}.txt").write_text(TEXT, "utf-8")
    for name in ASKED:
        line = json.dumps({"questions": [{"question": "Who came?"}, {"question": "How does it end?"}]})
        (folder / "reading" / f"{name}.jsonl").write_text(line + "\n", "utf-8")
    return folder


def test_mentions_are_counted_where_they_overlap(tmp_path: Path):
    path = made(tmp_path) / "litbank" / "a.ann"
    proper, persons = marked_mentions(path)
    assert [TEXT[start:end] for start, end in proper] == ["Mr. Ansell", "Hannah", "Mr. Ansell"]
    assert len(persons) == 4
    counts = judged([path])
    assert counts["names"] == 3 and counts["names_found"] == counts["found_names"] == counts["found"] == 3
    assert people_table({"all": counts}).rows[0][3:] == ("1.000", "1.000", "1.000")


def test_places_are_counted_apart_from_people(tmp_path: Path):
    path = tmp_path / "a.ann"
    path.with_suffix(".txt").write_text(
        "Mr. Ansell lived in Saltby . Hannah came to Saltby from Holm .", "utf-8"
    )
    path.write_text(
        "T1\tPROP_PER 0 10\tMr. Ansell\nT2\tPROP_GPE 20 26\tSaltby\nT3\tPROP_GPE 44 50\tSaltby\n", "utf-8"
    )
    counts = judged_places([path])
    assert counts["names"] == counts["names_found"] == 2
    assert places_table({"all": counts}).rows[0][1:3] == (1, 2)


def test_questions_that_are_taken_are_named(tmp_path: Path, monkeypatch, capsys):
    folder = made(tmp_path)
    who, end = questions(folder / "reading" / "qamr.jsonl")
    monkeypatch.setattr("sys.argv", ["people", "--data", str(folder)])
    main()
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["taken"]["qamr"] == [end] != [who]
    assert asked_table({"qamr": (2, told["taken"]["qamr"])}).rows == (("qamr", 2, 1),)
