"""The command line: names, options and exit codes. What the commands do is in app.commands and app.talk,
imported when they run.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from app.manual import no_default_any_more
from app.preferences import Preferences, fixed
from app.terminal import chapter_range
from core.config import FITS, LENGTHS, MODES, RULES, load_settings, override, stay_offline, use_data_dir
from core.errors import UserError

DONE, USER, USAGE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns 0 done, 1 the user's input or machine, 2 usage, 130 interrupted."""
    parser, arguments = build_parser(), sys.argv[1:] if arguments is None else arguments
    given = parser.parse_args(_with_command(arguments))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal that lacks a letter must not end the answer
            stream.reconfigure(errors="replace")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        return _run(parser, given)
    except UserError as error:
        print(error, file=sys.stderr)
        return USER
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `... | head`: whoever read us has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return DONE


def command() -> int:
    """`triforce-chat`: without a command it opens the app, as the launcher does."""
    return main(sys.argv[1:] or ["app"])


def _with_command(arguments: list[str]) -> list[str]:
    """The app's command may be left out before a file, as file managers do ("Open with"), and --offline."""
    first = arguments[0] if arguments else ""
    is_file = not first.startswith("-") and (os.sep in first or "/" in first or Path(first).suffix)
    implied = first not in _COMMANDS and is_file or arguments == ["--offline"]
    return ["app", *arguments] if implied else arguments


def _run(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    settings = load_settings(None, dict.fromkeys(no_default_any_more(), "auto"))
    try:
        # an option that is called as a setting is this setting; not given means: what the settings file says
        settings = override(settings, {key: getattr(given, key, None) for key in RULES})
    except UserError as error:
        parser.exit(USAGE, f"{error}\n")
    use_data_dir(settings)
    given.preferences = Preferences(settings, fixed(vars(given)))
    module, name = given.run.split(":")
    stay_offline(given.preferences.settings)
    command: Callable[..., int] = getattr(importlib.import_module(module), name)
    return command(given, given.preferences.settings)


def build_parser() -> argparse.ArgumentParser:
    """All commands and options."""
    of_the_launcher = "The launcher's own: test, repair, update FROM, uninstall (docs/setup.md)."
    parser = argparse.ArgumentParser(
        prog="launcher.py", description="Read whole books with a local model.", epilog=of_the_launcher
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="{" + ",".join(_COMMANDS) + "}")
    for name, (text, fill) in _COMMANDS.items():
        fill(commands.add_parser(name, help=text, description=text, formatter_class=_Wide))
    return parser


class _Wide(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)


def _summarize(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.talk:summarize")
    _book(parser)
    parser.add_argument("--question", metavar="TEXT", help="answer this question instead of summarising")
    _length(parser)
    _reading(parser)
    _answering(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def _chat(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.talk:chat")
    _book(parser)
    _length(parser)
    _reading(parser)
    _answering(parser)


def _extract(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.commands:extract")
    _book(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--json", action="store_true", help="title, author, format, words, chapters and warnings as JSON"
    )
    what.add_argument("--text", action="store_true", help="the text itself")


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.commands:doctor")
    parser.add_argument(
        "--measure", action="store_true", help="measure bus and disk again, whatever was measured before"
    )
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="try the card in small, in a minute or two: attention, copies, recordings, an answer",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def _plan(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.commands:plan")
    parser.add_argument("--model", metavar="NAME", help="a name from `models list` or a folder")
    parser.add_argument("--context", dest="context_tokens", metavar="N", help="tokens of context")
    parser.add_argument("--weights", metavar="BITS", help="16 decodes a GGUF; 8 or 4 rounds a model of 16")
    parser.add_argument("--kv", metavar="BITS", help="of the KV cache: 16, or 8 for half the memory")
    _imagined(parser)
    parser.add_argument(
        "--acceptance", dest="assumed_acceptance", metavar="A", help="assumed acceptance rate, 0.01 to 0.999"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def _imagined(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpu", metavar="NAME", help='imagine this GPU, for example "RTX 4090"; none: without one'
    )
    parser.add_argument("--vram", type=_positive, metavar="GiB", help="imagine so much GPU memory")
    parser.add_argument("--ram", type=_positive, metavar="GiB", help="imagine so much memory")
    parser.add_argument(
        "--pcie", type=_positive, metavar="GB/s", help="imagine this transfer rate to the GPU"
    )
    parser.add_argument("--os", metavar="NAME", help="imagine this system: linux, windows or macos")


def _models(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.model_commands:models")
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "download", "move", "path"),
        default="list",
        help="list them, download one, move one, or print the folder they are in",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="which model to download or move")
    parser.add_argument("--to", metavar="FOLDER", help="where to move it")
    _imagined(parser)
    _offline(parser)
    parser.add_argument("--json", action="store_true", help="the list as JSON")


def _use(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.model_commands:use")
    parser.add_argument("file", metavar="FILE", help="a GGUF file, or the folder in which it lies alone")


def _snapshots(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.commands:snapshots")
    parser.add_argument(
        "action",
        nargs="?",
        choices=("show", "clear"),
        default="show",
        help="say how much there is, or delete all of it",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def _train_draft(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.commands:train_draft")
    parser.add_argument(
        "--target", dest="model", metavar="NAME", help="the model to draft for (default: the embedded one)"
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="where the draft goes; a run that was stopped goes on there",
    )
    parser.add_argument(
        "--data", required=True, nargs="+", metavar="PATH", help="books, or folders with books, to train on"
    )
    parser.add_argument(
        "--tokens", type=_count, metavar="N", help="tokens that the target reads and writes (default: 400000)"
    )
    parser.add_argument(
        "--epochs", type=_count, metavar="N", help="how often the draft goes through them (default: 3)"
    )
    parser.add_argument(
        "--layers", type=_count, metavar="N", help="decoder layers of the draft, 1 to 4 (default: 1)"
    )
    parser.add_argument(
        "--head-tokens",
        type=_count,
        metavar="N",
        help="the most frequent tokens, which it can propose (default: 16384)",
    )
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--threads", metavar="N", help="CPU threads")
    parser.add_argument("--seed", metavar="S", help="repeats the same training")


def _tune(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.commands:tune")
    parser.add_argument("--model", metavar="NAME", help="a name from `models list` or a folder")
    parser.add_argument("--context", dest="context_tokens", metavar="N", help="tokens of context")
    parser.add_argument("--weights", metavar="BITS", help="16 decodes a GGUF; 8 or 4 rounds a model of 16")
    parser.add_argument("--kv", metavar="BITS", help="of the KV cache: 16, or 8 for half the memory")
    parser.add_argument(
        "--book", action="append", metavar="FILE", help="read this instead of the samples; may be given again"
    )
    parser.add_argument("--temperature", metavar="T", help="of the answers it is tuned for")
    parser.add_argument("--json", action="store_true", help="what was measured and chosen as JSON")


def _serve(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.commands:serve")
    parser.add_argument("--api", action="store_true", default=None, help="answer other programs, too")
    _offline(parser)


def _api_key(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.commands:api_key")


def _mcp(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.assistant.program:mcp")


def _app(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.commands:app")
    parser.add_argument("file", nargs="*", metavar="FILE", help="books to open; one that runs takes them")
    _offline(parser)


def _offline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--offline", action="store_true", default=None, help="fetch nothing")


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "summarize": ("stream a summary of a book, or the answer to a question about it", _summarize),
    "chat": ("talk about a book in the terminal", _chat),
    "extract": ("show what is read from a file, without any model", _extract),
    "doctor": ("what was detected, what would run and what is wrong", _doctor),
    "plan": ("what fits where and how fast it would be, on this machine or an imagined one", _plan),
    "models": ("list and download models", _models),
    "use": ("use a model file where it lies, also in the app that runs", _use),
    "snapshots": ("what is kept on disk of books that were read", _snapshots),
    "tune": ("measure on this machine what the plan assumes, and keep what proves faster", _tune),
    "train-draft": ("train a small model that drafts for another one", _train_draft),
    "serve": ("start the app without opening the browser", _serve),
    "api-key": ("make a new key for other programs; the one before ends", _api_key),
    "mcp": ("serve an assistant that starts this (docs/mcp.md)", _mcp),
    "app": ("start the app and open it in the browser", _app),
}


def _book(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="a book: PDF, EPUB, FB2, TXT, HTML, Markdown, DOCX, ODT or RTF"
    )
    parser.add_argument("--password", metavar="TEXT", help="opens an encrypted PDF")
    parser.add_argument(
        "--ocr",
        action="store_true",
        help="read scanned pages, too; needs requirements-ocr.txt, seconds per page",
    )


def _length(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--length",
        dest="summary_length",
        choices=LENGTHS,
        help="of a summary: a paragraph, a page, or a paragraph for each of the chapters",
    )


def _reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--chapters", type=_chapters, metavar="1-3", help="read only these chapters (`extract` numbers them)"
    )
    parser.add_argument(
        "--fit",
        choices=FITS,
        help="whole: refuse what does not fit; sections: in parts; passages: from those a question points at",
    )
    parser.add_argument("--until", type=_count, metavar="N", help="read and show nothing behind chapter N")
    parser.add_argument(
        "--model", metavar="NAME", help="a name from `models list` or a folder with a checkpoint"
    )
    _offline(parser)
    parser.add_argument("--context", dest="context_tokens", metavar="N", help="tokens of context")
    parser.add_argument("--weights", metavar="BITS", help="16 decodes a GGUF; 8 or 4 rounds a model of 16")
    parser.add_argument("--kv", metavar="BITS", help="of the KV cache: 16, or 8 for half the memory")


def _answering(parser: argparse.ArgumentParser) -> None:
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


def _count(text: str) -> int:
    try:
        return int(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _stop(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


if __name__ == "__main__":
    sys.exit(main())
