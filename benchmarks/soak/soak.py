"""Long use: hundreds of turns over many books, and whether anything grows that has no bound.

    python -m benchmarks.soak [--turns 300] [--real 60] [--books 20] [--models FOLDER] [--save NAME]

The whole app serves a page to a listener that reads its event stream as a browser does; a person by script
opens one book after the other and asks. The first turns are answered by the embedded model, the rest, after a
restart on the same data, by a script in a worker process of its own (tests/support/scripted_worker.py). After
every turn private memory, threads and open files of app and worker, the size of the page and the turn's time
are noted. `--models`: a models folder that holds the embedded model; without it, it is fetched.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil

REPO = Path(__file__).resolve().parents[2]
from core.paths import subdir

# the contexts that the engine keeps have a bound of up to 4 GiB, which 60 turns do not reach: here it is less
KEPT_MIB = 128
REAL = (
    f"import core.planning.budget as b; b._BEFORE_MOST = {KEPT_MIB} << 20; "
    "from core import worker; worker.main()"
)
SCRIPT = REPO / "tests" / "support" / "scripted_worker.py"
TEXTS = ("the-light-on-the-holm.md", "the-thursday-clock.md")
BOOK_WORDS = 2500
QUESTIONS = (
    "Who keeps the light?",
    "What does the clock do on a Thursday?",
    "Where does the boat come from?",
    "Why does nobody believe it?",
    "Who tells the story?",
    "What is found in the morning?",
)
TURN_LIMIT_S = 600
MB = 1e6


def main() -> None:
    """Both stretches, one after the other, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--real", type=int, default=60)
    parser.add_argument("--books", type=int, default=20)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--save", metavar="NAME")
    parser.add_argument("--stretch", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stretch:
        for facts in turns(given.stretch[0], int(given.stretch[1]), int(given.stretch[2]), given.books):
            print(json.dumps(facts), flush=True)
        return
    with tempfile.TemporaryDirectory() as home:
        if given.models:
            (Path(home) / "models").symlink_to(given.models.resolve(), target_is_directory=True)
        taken = {
            kind: stretch(kind, first, count, given.books, home)
            for kind, first, count in (
                ("real", 0, given.real),
                ("script", given.real, given.turns - given.real),
            )
            if count
        }
    rows = [row for kind, facts in taken.items() for row in summary(kind, facts, given.books)]
    for row in rows:
        print(*row, sep="  ")
    if given.save:
        save_soak(given.save, rows, taken, given.books)


def stretch(kind: str, first: int, count: int, books: int, home: str) -> list[dict]:
    """The facts of each turn from turn `first` on."""
    command = [sys.executable, "-m", "benchmarks.soak.soak", "--books", str(books)]
    run = subprocess.Popen(
        [*command, "--stretch", kind, str(first), str(count)],
        env={**os.environ, "TRIFORCE_HOME": home},
        stdout=subprocess.PIPE,
        text=True,
    )
    facts = []
    for line in run.stdout:
        if line.startswith("{"):
            facts.append(json.loads(line))
            print(f"{kind} {len(facts)}/{count}", json.dumps(facts[-1]), file=sys.stderr, flush=True)
    assert run.wait() == 0, "the app ended with an error"
    return facts


def turns(kind: str, first: int, count: int, books: int) -> Iterator[dict]:
    """Serves the app and asks; what is to be known of each turn."""
    from app.desk.import_queue import Readers
    from app.engine.client import Runtime
    from app.host.secrets import kept_keys
    from app.models.catalogue import Models
    from app.server.main import Server, make_services
    from core.config import Settings
    from core.documents import cover_safely, read_safely

    settings = Settings(port=0, device="cpu", max_new_tokens=48, snapshot_quota_gb=2.0)
    worker = (sys.executable, *(("-c", REAL) if kind == "real" else (str(SCRIPT),)))
    readers = Readers(read_safely, cover_safely, lambda: False)
    desk = make_services(Runtime(settings, worker=worker), models=Models(settings), readers=readers)
    server = Server(desk, settings, keys=kept_keys(subdir("run")))
    address = server.start()
    desk.engine.start()
    page = PageListener(address)
    assert desk.engine.wait_ready(TURN_LIMIT_S), desk.engine.error
    try:
        files = soak_books(subdir("tmp"), books)
        for turn in range(first, first + count):
            began, at = time.monotonic(), turn % books
            bring(desk, files[at], at)
            ask(desk, turn, books)
            taken_s = time.monotonic() - began
            time.sleep(0.3)  # the page's last words
            yield {"turn": turn + 1, "seconds": taken_s, "page": page.bytes, "sent": page.sent, **sizes(desk)}
    finally:
        server.stop()


def bring(desk: object, path: Path, at: int) -> None:
    """Opens the book: from the shelf where it stands there."""
    title = f"Book {at + 1}"
    known = next((entry for entry in desk.library.entries() if entry.title == title), None)
    if known is None:
        desk.imports.upload(str(path), path.name)
    else:
        desk.books.select(known.id)
    wait(lambda: desk.state.opening is None and (book := desk.books.current) and book.title == title)


def ask(desk: object, turn: int, books: int) -> None:
    """One turn: mostly a question; each fifth round of the shelf begins a new conversation, and now and then
    an answer is made again or a summary asked for.
    """

    round_of_shelf, at = divmod(turn, books)
    if round_of_shelf % 5 == 4:
        desk.books.begin_conversation()
    if round_of_shelf % 4 == 3 and at % 4 == 0 and desk.books.turns:
        desk.questions.regenerate()
    elif round_of_shelf and at % 10 == 9:
        desk.questions.summarize()
    else:
        assert desk.questions.ask(QUESTIONS[turn % len(QUESTIONS)]), desk.state.notice
    wait(lambda: not desk.state.busy)
    state = desk.books.turns[-1].state
    assert state == "finished", (turn, state, desk.state.answer.error)


def wait(true: object) -> None:
    """Until it is so."""
    end = time.monotonic() + TURN_LIMIT_S
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def sizes(desk: object) -> dict[str, int]:
    """What app and worker hold now."""
    found = {}
    for name, pid in (("app", os.getpid()), ("worker", desk.engine.pid)):
        process = psutil.Process(pid)
        found[f"{name}_bytes"] = process.memory_full_info().uss
        found[f"{name}_threads"] = process.num_threads()
        found[f"{name}_files"] = process.num_fds() if hasattr(process, "num_fds") else process.num_handles()
    return found


def soak_books(folder: Path, count: int) -> list[Path]:
    """So many texts of two or three thousand words, each another stretch of the samples."""
    words = " ".join((REPO / "assets" / "samples" / name).read_text("utf-8") for name in TEXTS).split(" ")
    step, made = max(1, (len(words) - BOOK_WORDS) // max(1, count - 1)), []
    for at in range(count):
        text = " ".join(words[at * step : at * step + BOOK_WORDS])
        path = folder / f"soak-{at + 1}" / f"Book {at + 1}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Book {at + 1}\n\n{text}\n", encoding="utf-8")
        made.append(path)
    return made


class PageListener:
    """A page that is open: it keeps the regions as assets/js/stream.js does."""

    def __init__(self, address: object) -> None:
        self.sent = 0  # bytes that came
        self._regions: dict[str, list[str]] = {}
        self._asked = urllib.request.Request(
            f"http://127.0.0.1:{address.port}/events",
            headers={"Cookie": f"{address.cookie}={address.secret}"},
        )
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def bytes(self) -> int:
        """Of all that the page shows now, as HTML."""
        return sum(len(html.encode()) for blocks in self._regions.values() for html in blocks)

    def _listen(self) -> None:
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self._asked) as stream:
                for line in stream:
                    self.sent += len(line)
                    if line.startswith(b"data: "):
                        for name, (stay, *new) in json.loads(line[6:])["regions"].items():
                            self._regions[name] = [*self._regions.get(name, [])[:stay], *new]
        except OSError:
            return  # the app has ended


def summary(kind: str, facts: list[dict], books: int) -> list[tuple]:
    """A row for each mark: the first round of the shelf, the middle, the end; medians over a tenth."""
    span = max(1, len(facts) // 10)
    marks = sorted({min(books, len(facts)), (len(facts) + books) // 2, len(facts)})
    return [_row(kind, facts[max(0, mark - span) : mark]) for mark in marks]


def _row(kind: str, facts: list[dict]) -> tuple:
    def median(key: str) -> float:
        return statistics.median(one[key] for one in facts)

    return (
        f"{facts[0]['turn']} to {facts[-1]['turn']}",
        "embedded model" if kind == "real" else "script",
        round(median("app_bytes") / MB, 1),
        round(median("worker_bytes") / MB, 1),
        f"{median('app_threads'):.0f} / {median('app_files'):.0f}",
        f"{median('worker_threads'):.0f} / {median('worker_files'):.0f}",
        round(median("page") / 1000, 1),
        round(median("seconds"), 2),
    )


def save_soak(name: str, rows: list[tuple], taken: dict[str, list[dict]], books: int) -> None:
    """Write benchmarks/results/<name>.json."""
    from benchmarks.lib.results import Table, save_result

    columns = (
        "Turns",
        "Answered by",
        "app, MB",
        "worker, MB",
        "app's threads / files",
        "worker's threads / files",
        "page, kB",
        "s a turn",
    )
    again = " The app was ended and started again between the two." if len(taken) > 1 else ""
    notes = (
        f"{sum(map(len, taken.values()))} turns over {books} books, another book at each turn; medians over "
        f"a tenth of the stretch that ends there. Private memory (USS).{again}",
        f"The KV caches that the worker keeps of passages and parts were given {KEPT_MIB} MiB; in use it is "
        "a quarter of the memory that the plan leaves and at most 4 GiB.",
        "The page holds the conversation, which grows until a new one is begun. Other programs used the "
        "machine: seconds say whether turns get slower, not how fast they are.",
    )
    save_result(name, [Table("Long use", columns, tuple(rows), notes)], {"turns": taken})


if __name__ == "__main__":
    main()
