"""Asks a question about a book and prints the answer as it is written: answer.py [BOOK [QUESTION]]"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from core.build import open_session  # noqa: E402
from core.config import Settings  # noqa: E402
from core.documents import read_document  # noqa: E402
from core.events import Delta  # noqa: E402
from core.request import Request, params_of  # noqa: E402


def main(book: str = str(ROOT / "assets/samples/the-thursday-clock.epub"), question: str = "Who repairs it?"):
    settings = Settings(max_new_tokens=128)
    session = open_session(settings)
    for event in session.ask(Request(question, read_document(Path(book)), params=params_of(settings))):
        if isinstance(event, Delta):
            print(event.text, end="", flush=True)
    stats, accepted = event.stats, event.stats.acceptance_retrieval
    print(f"\n\n{stats.new_tokens} tokens, {stats.tbt_mean_ms:.0f} ms between tokens (TBT)")
    print(f"{accepted.accepted} of {accepted.evaluated} proposed tokens accepted by the full model")


if __name__ == "__main__":
    main(*sys.argv[1:])
