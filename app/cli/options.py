"""Options that several commands have, and how they are read."""

from __future__ import annotations

import argparse

from app.cli.terminal import chapter_range
from core.config import LENGTHS, MODES, READING_MODES, SUMMARIES
from core.errors import UserError
from core.text.renamed import reading_mode


def offline_option(parser: argparse.ArgumentParser) -> None:
    """For what could fetch something."""
    parser.add_argument("--offline", action="store_true", default=None, help="fetch nothing")


def imagined_options(parser: argparse.ArgumentParser) -> None:
    """A PC that is not this one."""
    parser.add_argument(
        "--gpu", metavar="NAME", help='imagine this GPU, for example "RTX 4090"; none: without one'
    )
    parser.add_argument(
        "--gpus", type=count, metavar="N", help="imagine so many of it, among which a model is divided"
    )
    parser.add_argument("--vram", type=positive, metavar="GiB", help="imagine so much GPU memory")
    parser.add_argument("--ram", type=positive, metavar="GiB", help="imagine so much memory")
    parser.add_argument("--pcie", type=positive, metavar="GB/s", help="imagine this transfer rate to the GPU")
    parser.add_argument("--os", metavar="NAME", help="imagine this system: linux, windows or macos")


def book_options(parser: argparse.ArgumentParser) -> None:
    """The file and how it is opened."""
    parser.add_argument(
        "file", metavar="FILE", help="a book: PDF, EPUB, FB2, TXT, HTML, Markdown, DOCX, ODT or RTF"
    )
    parser.add_argument("--password", metavar="TEXT", help="opens an encrypted PDF")
    parser.add_argument(
        "--ocr",
        action="store_true",
        help="read scanned pages, too; needs requirements-ocr.txt, seconds per page",
    )
    parser.add_argument("--whole-page", action="store_true", help="of a web page all, not the article alone")


def length(parser: argparse.ArgumentParser) -> None:
    """How long a summary is, and who tells it."""
    parser.add_argument(
        "--summaries", choices=SUMMARIES, help="own: in the book's own sentences, at once, without decoding"
    )
    parser.add_argument(
        "--length",
        dest="summary_length",
        choices=LENGTHS,
        help="of a summary: a paragraph, a page, or a paragraph for each of the chapters",
    )


def reading(parser: argparse.ArgumentParser) -> None:
    """What of the book is read, and by which model."""
    parser.add_argument(
        "--chapters", type=_chapters, metavar="1-3", help="read only these chapters (`extract` numbers them)"
    )
    parser.add_argument(
        "--reading-mode",
        "--fit",
        dest="reading_mode",
        type=reading_mode,
        choices=READING_MODES,
        help="full: refuse what does not fit; chunked: in parts; retrieval: from the passages asked for",
    )
    parser.add_argument(
        "--spoiler-limit",
        "--until",
        dest="spoiler_limit",
        type=count,
        metavar="N",
        help="read and show nothing behind chapter N",
    )
    model(parser)
    offline_option(parser)


def model(parser: argparse.ArgumentParser) -> None:
    """Which one runs, and in which format."""
    parser.add_argument(
        "--model", metavar="NAME", help="a name from `models list` or a folder with a checkpoint"
    )
    parser.add_argument("--context", dest="context_tokens", metavar="N", help="tokens of context")
    parser.add_argument("--weights", metavar="BITS", help="16 decodes a GGUF; 8 or 4 rounds a model of 16")
    parser.add_argument("--kv", metavar="BITS", help="of the KV cache: 16, or 8 for half the memory")


def answering(parser: argparse.ArgumentParser) -> None:
    """How answers are written."""
    parser.add_argument("--instructions", metavar="TEXT", help="for every answer: 'in German, briefly'")
    parser.add_argument("--max-new-tokens", metavar="N", help="longest answer in tokens")
    parser.add_argument("--temperature", metavar="T", help="0 takes the likeliest token always")
    parser.add_argument(
        "--top-p", metavar="P", help="draw from the likeliest tokens that together reach this probability"
    )
    parser.add_argument(
        "--repetition-penalty", metavar="R", help="above 1: what was said becomes less likely"
    )
    parser.add_argument("--seed", metavar="S", help="repeats the same answer")
    parser.add_argument(
        "--stop",
        action="append",
        type=_stop,
        metavar="TEXT",
        help="end the answer before this text; \\n is a line break; may be given again",
    )
    parser.add_argument(
        "--mode", choices=MODES, help="how tokens are drafted; the text's distribution is always the same"
    )
    parser.add_argument(
        "--budget", dest="retrieval_budget", metavar="N", help="tokens the retrieval cache holds"
    )
    parser.add_argument("--gamma", metavar="N", help="tokens proposed per round")
    parser.add_argument(
        "--verify",
        action="store_const",
        const=True,
        help="check every answer against plain decoding afterwards",
    )


def _chapters(text: str) -> tuple[int, int]:
    try:
        return chapter_range(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    """A whole number; 8,000 is one."""
    try:
        return int(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _stop(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def positive(text: str) -> float:
    """A number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number
