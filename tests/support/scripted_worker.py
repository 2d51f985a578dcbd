"""A worker process with a scripted engine, for tests of the processes: `python
tests/support/scripted_worker.py --parent PID`.

SCRIPT_SLOW: seconds per round. SCRIPT_READ: seconds per tenth of a text that is read.
SCRIPT_COUNT: seconds until the tokens of a text are counted.
SCRIPT_ANSWER: "words=answer", the answer to a prompt that has these words.
SCRIPT_PROMPTS: a file that gets every prompt.
SCRIPT_NOISE: print to stdout. SCRIPT_QUOTE: fail with the prompt in the error.
SCRIPT_SAVE: a file that gets a line for every book stored, stopped or forgotten, with ".begun" beside it;
storing takes SCRIPT_SAVE_S seconds unless it gives way. SCRIPT_FULL: storing finds the disk full.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core import worker  # noqa: E402
from core.conversation.reading import ReadingStyle  # noqa: E402
from core.errors import DeviceLost, RankLost, UserError  # noqa: E402
from core.events import Loading  # noqa: E402


def open_session(settings, *, hear):
    """The session of the worker, without a model."""
    from core.conversation.session import Session
    from tests.support.fakes import CharTokenizer, FakeEngine

    hear(Loading("Making believe", 0.5, 7.0))
    if settings.model == "endless":
        time.sleep(3600)
    if os.environ.get("SCRIPT_DIE"):
        os._exit(7)
    if os.environ.get("SCRIPT_LOST"):
        raise DeviceLost("a kernel on trial")
    if os.environ.get("SCRIPT_FAIL"):
        raise UserError("The model does not fit. Buy memory.")

    class Counting(CharTokenizer):
        """Takes its time for a book."""

        def count(self, text):
            time.sleep(float(os.environ.get("SCRIPT_COUNT", "0")) if len(text) > 500 else 0)
            return super().count(text)

    tokenizer, pause = Counting(), float(os.environ.get("SCRIPT_SLOW", "0"))

    def reply(ids, params):
        if os.environ.get("SCRIPT_NOISE"):
            os.write(1, b"a library prints here\n")
        words, _, answer = os.environ.get("SCRIPT_ANSWER", "").partition("=")
        if answer and words in tokenizer.decode(ids):
            yield from tokenizer.encode(answer)
            return
        question = tokenizer.decode(ids).rsplit("\n\n", 1)[-1]
        if os.environ.get("SCRIPT_QUOTE"):
            raise RuntimeError(tokenizer.decode(ids))
        if question == "crash":
            raise ZeroDivisionError("oops")
        if question == "rank":
            raise RankLost("rank 0 of 2 waited in vain for another")
        if question == "fault":
            engine.lost = True
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        for char in f"You asked {question!r}. " + ("".join(f"n{i} " for i in range(40)) if pause else ""):
            time.sleep(pause)
            yield tokenizer.encode(char)[0]

    class Lazy(FakeEngine):
        """Emits tokens as the script gives them, so that a slow answer can be interrupted."""

        def generate(self, context, ids, params, *, should_stop, ends):
            from core.decoding.decoder import Round
            from core.engine import Done
            from core.events import Acceptance, DecodingStarted, Prefill, Stats

            if "SCRIPT_PROMPTS" in os.environ:
                with Path(os.environ["SCRIPT_PROMPTS"]).open("a", encoding="utf-8") as file:
                    file.write(tokenizer.decode(ids) + "\n")
            slow = float(os.environ.get("SCRIPT_READ", "0"))
            held = len(context.ids) if slow and context.ids == ids[: len(context.ids)] else 0
            stats = Stats(prompt_tokens=len(ids), reused_tokens=held)
            for step in range(1, 11) if slow else (10,):  # what is read of a slow text stays
                if should_stop():
                    yield Done("user", Stats())
                    return
                time.sleep(slow)
                done = (len(ids) - held) * step // 10
                context.ids = ids[: held + done]
                yield Prefill(done, len(ids) - held, 0.1, slow * (10 - step))
            yield DecodingStarted(params.mode, "script", self.context_tokens, len(ids), held)
            for token in reply(ids, params):
                if should_stop():
                    yield Done("user", Stats())
                    return
                yield Round((token,), ("target",), Acceptance(), Acceptance(), 0.01)
            yield Done("stop", stats)

        def save(self, context, *, should_stop):
            if os.environ.get("SCRIPT_FULL"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if context.book[1] and "SCRIPT_SAVE" in os.environ:
                Path(os.environ["SCRIPT_SAVE"] + ".begun").touch()
                for _ in range(int(50 * float(os.environ["SCRIPT_SAVE_S"]))):
                    if should_stop():
                        tell("stopped")
                        return
                    time.sleep(0.02)
                context.book = ("", 0)
                tell("saved")

        def forget_book(self, book_id):
            tell("forgotten")

    def tell(what):
        with Path(os.environ["SCRIPT_SAVE"]).open("a", encoding="utf-8") as file:
            file.write(what + "\n")

    engine = Lazy(reply)
    engine.model_name = settings.model or "fake"
    return Session(
        engine, tokenizer, ReadingStyle(part_tokens=300, system=""), read_whole_s=settings.read_whole_s
    )


if __name__ == "__main__":
    worker.main(open_session=open_session)
