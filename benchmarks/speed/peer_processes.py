"""Those who decode in benchmarks/speed/llamacpp.py: each is a process, `python -m benchmarks.peer_processes`,
that answers when it is asked.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count as counted
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from core.backend.cpu.threads import bound_spinning

bound_spinning()

import torch

from benchmarks.lib import embedded, isa
from benchmarks.lib.layer_timer import PARTS, Parts, timed_engine
from core.backend.cpu.native.library import instruction_sets
from core.config import Settings
from core.hardware.cpu import cpu_flags
from core.planning.plan import Plan

# the first right behind the prompt, the others in turn with the other peers
TURNS, MOST_TURNS = 8, 12  # the more, the less sure a median is
Times = list[float]  # seconds per token, the first one left out
Answer = tuple[float, list[int], Times]  # prefill in seconds, tokens, times
# prompt, tokens wanted; called again it keeps the prompt's KV where the peer can
Run = Callable[[list[int], int], Answer]
OURS = {  # row -> mode, temperature
    "ours, plain": ("autoregressive", 0.0),
    "ours, TriForce": ("triforce", 0.0),
    "ours, TriForce, T 0.6": ("triforce", 0.6),
    "ours, TriForce, T 1": ("triforce", 1.0),
}
BY_PART, LOOKUP, FLASH = "ours, by part", "llama.cpp, prompt lookup", "llama.cpp, flash attention"
LLAMA_BATCH = 512  # tokens it reads at once, in all and as one product (n_batch, n_ubatch): its own default
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}  # cpu: of all threads
LINUX = sys.platform == "linux"  # elsewhere psutil does not tell pages of files apart


@dataclass(frozen=True, slots=True)
class PeerSetup:
    """What every peer is given: the checkpoint in both formats, a draft for those that want one, our plan for
    the context, the prompt, and where its KV is kept if it is to be read but once.
    """

    folder: Path
    gguf: Path
    draft: Path
    plan: Plan
    settings: Settings
    ids: list[int]
    clock: Callable[[], float] = time.perf_counter
    kept: Path | None = None


class Cannot(Exception):
    """This peer does not run here; the words say why."""


def main(arguments: list[str] | None = None) -> int:
    """One JSON line for each line that comes in: {"rows": {row: {prefill_s, tokens, times}}, "memory": ...,
    "instructions": ...}, {"parts": ...} or {"reason": ...}.
    """
    options = _arguments(arguments)
    turn = _turn(options)
    for _ in sys.stdin:
        print(json.dumps(turn()), flush=True)
    return 0


def _turn(options: argparse.Namespace) -> Callable[[], dict[str, Any]]:
    from core.model.gguf.folder import opened

    folder, length = opened(options.gguf), options.context
    ids = embedded.book_ids(options.book, folder, least=length)[:length]
    threads = {"threads": options.threads} if options.threads else {}
    room = length + options.tokens + embedded.SPARE_TOKENS
    plan, settings = embedded.embedded_plan(folder, room, **threads)
    clock = CLOCKS[options.clock]
    setup = PeerSetup(folder, options.gguf, options.draft, plan, settings, ids, clock, options.kept)
    if options.peer == BY_PART:
        return lambda: {"parts": by_part(setup, ids, options.tokens, options.book.name)}
    try:
        runs = PEERS[options.peer].rows(setup)
    except Cannot as reason:
        said = str(reason)
        return lambda: {"reason": said}
    return lambda: {
        "rows": {name: _told(setup, run(ids, options.tokens)) for name, run in runs.items()},
        "memory": resident_and_mapped_mb(),
        "instructions": claimed_instructions(PEERS[options.peer].package),
    }


def _told(setup: PeerSetup, answer: Answer) -> dict[str, Any]:
    """An answer by name. What a kept prompt took to read is not known."""
    prefill_s, tokens, times = answer
    return {"prefill_s": None if setup.kept else prefill_s, "tokens": tokens, "times": times}


def claimed_instructions(package: str) -> str:
    """The instruction sets that it says it computes with."""
    if package == "llama_cpp":
        from llama_cpp import llama_print_system_info

        return llama_print_system_info().decode().strip()
    ours = instruction_sets(cpu_flags())
    return f"torch {torch.backends.cpu.get_cpu_capability()}, our libraries {ours[0] if ours else 'none'}"


def resident_and_mapped_mb() -> dict[str, float]:
    """This process's resident MB now, and of them those that are pages of files, such as mapped weights."""
    held = psutil.Process().memory_info()
    return {"resident_mb": held.rss / 1e6, "of_files_mb": held.shared / 1e6 if LINUX else 0.0}


def _llama_cpp(
    setup: PeerSetup, *, name: str = "llama.cpp", lookup: bool = False, flash: bool = False
) -> dict[str, Run]:
    from llama_cpp import LLAMA_ROPE_SCALING_TYPE_YARN, Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    if isa.cap() and "AVX512 = 1" in claimed_instructions("llama_cpp"):
        raise Cannot(
            f"llama-cpp-python was built with AVX-512; build it with CMAKE_ARGS={isa.LLAMA_CPP_OPTIONS!r}"
        )
    plan = setup.plan
    stretched = (
        {
            "rope_scaling_type": LLAMA_ROPE_SCALING_TYPE_YARN,
            "rope_freq_scale": 1 / plan.context_stretch,
            "yarn_orig_ctx": round(plan.context_tokens / plan.context_stretch),
        }
        if plan.context_stretch > 1
        else {}
    )
    model = Llama(
        str(setup.gguf),
        n_ctx=plan.context_tokens,
        n_threads=plan.threads,
        n_threads_batch=plan.threads,
        n_batch=LLAMA_BATCH,
        n_ubatch=LLAMA_BATCH,
        flash_attn=flash,
        verbose=False,
        # its drafts are judged by rows that it would not keep otherwise
        n_gpu_layers=0,
        logits_all=lookup,
        draft_model=LlamaPromptLookupDecoding(num_pred_tokens=10) if lookup else None,
        **stretched,
    )
    if setup.kept:
        _restore(model, setup.ids, setup.kept / f"{name}, {len(setup.ids)}.state")

    def answer(ids: list[int], count: int) -> Answer:
        said = model.generate(ids, temp=0.0, repeat_penalty=1.0)
        return timed_tokens(said, count, eos={model.token_eos()}, clock=setup.clock)

    return {name: answer}


def _restore(model: Any, ids: list[int], file: Path) -> None:
    """Has the prompt in llama.cpp's KV cache: from `file`, else reads it and puts it there."""
    import llama_cpp

    tokens = (llama_cpp.llama_token * len(ids))(*ids)
    if file.is_file():
        found = ctypes.c_size_t()
        given = (model.ctx, str(file).encode(), tokens, len(ids), ctypes.byref(found))
        assert llama_cpp.llama_state_load_file(*given) and tokens[:] == ids, f"{file} holds another prompt"
        model.input_ids[: len(ids)], model.n_tokens = ids, len(ids)
        return
    model.eval(ids)
    file.parent.mkdir(parents=True, exist_ok=True)
    assert llama_cpp.llama_state_save_file(model.ctx, str(file).encode(), tokens, len(ids)), file


def timed_tokens(
    stream: Iterator[int], count: int, *, eos: set[int], clock: Callable[[], float] = time.perf_counter
) -> Answer:
    """A generator of tokens by the clock. Tokens that come at once belong to one round and share its time."""
    started = last = clock()
    tokens: list[int] = []
    rounds: list[tuple[int, float]] = []  # tokens, seconds
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


def _transformers(setup: PeerSetup) -> dict[str, Run]:
    from benchmarks.speed import transformers_peer

    model = transformers_peer.load_peer(setup.folder, setup.plan)
    kept = transformers_peer.kept_cache(model)
    return {
        "transformers": lambda ids, count: transformers_peer.peer_answer(
            model, ids, count, past_key_values=kept(len(ids))
        )
    }


def _generate(setup: PeerSetup, *, name: str, device: str = "cpu", **how: Any) -> dict[str, Run]:
    from benchmarks.speed import transformers_peer

    model = transformers_peer.load_peer(setup.folder, setup.plan, device=device)
    return {name: lambda ids, count: transformers_peer.peer_answer(model, ids, count, **how)}


def _assisted(setup: PeerSetup) -> dict[str, Run]:
    from benchmarks.speed import transformers_peer

    if not setup.draft.is_dir():
        raise Cannot(f"it needs a smaller model with this vocabulary, and {setup.draft} is not there")
    model = transformers_peer.load_peer(setup.folder, setup.plan)
    draft = transformers_peer.load_peer_draft(setup.draft, model)
    return {
        "transformers, assisted": lambda ids, count: transformers_peer.peer_answer(
            model, ids, count, assistant_model=draft
        )
    }


def _offloaded(setup: PeerSetup) -> dict[str, Run]:
    if not torch.cuda.is_available():
        raise Cannot("it moves the cache between host memory and a GPU, and there is no GPU")
    return _generate(
        setup, name="transformers, offloaded cache", device="cuda", cache_implementation="offloaded"
    )


def _ours(setup: PeerSetup) -> dict[str, Run]:
    from core.assembly.engines import build_engine
    from core.decoding.decoder import Round
    from core.request import Params

    engine = build_engine(setup.plan, setup.settings, setup.folder, snapshots=setup.kept)
    context = engine.new_context(engine.context_tokens)
    if setup.kept:
        embedded.read_into(engine, context, setup.ids, "kept", out_of_time=lambda: False)

    def run(mode: str, temperature: float, seeds: Iterator[int], ids: list[int], count: int) -> Answer:
        tokens: list[int] = []
        times: Times = []
        params = Params(
            max_new_tokens=count,
            temperature=temperature,
            top_p=0.9 if temperature else 1.0,
            mode=mode,
            seed=next(seeds),
        )
        started = last = setup.clock()
        for event in engine.generate(context, ids, params):
            if not isinstance(event, Round):
                continue
            now, many = setup.clock(), len(event.tokens)
            if tokens:
                times += [(now - last) / many] * many
            else:
                prefill_s = now - started
            tokens += event.tokens
            last = now
        return prefill_s, tokens, times

    # another text each turn: how fast one text is drafted says little
    return {name: partial(run, *how, counted(1)) for name, how in OURS.items()}


def by_part(setup: PeerSetup, ids: list[int], count: int, book_id: str) -> dict[str, float]:
    """Milliseconds per plain token in linear layers, in attention, and in all, behind a prompt that may come
    from disk.
    """
    from core.paths import subdir

    engine, parts = timed_engine(setup.plan, setup.settings, setup.folder, snapshots=subdir("benchmarks"))
    context = engine.new_context(len(ids) + count + embedded.SPARE_TOKENS)
    embedded.read_into(engine, context, ids, book_id, out_of_time=lambda: False)
    return token_parts(engine, parts, context, ids, count)


def token_parts(engine: Any, parts: Parts, context: Any, ids: list[int], count: int) -> dict[str, float]:
    """See `by_part`; the medians over the tokens but the first, whose round follows the prefill."""
    from core.decoding.decoder import Round
    from core.request import Params

    found: list[dict[str, float]] = []
    for event in engine.generate(
        context, ids, Params(mode="autoregressive", temperature=0.0, max_new_tokens=count)
    ):
        if isinstance(event, Round):
            found.append({**parts.seconds, "token": event.seconds})
        parts.reset()
    return {f"{name}_ms": 1e3 * median(one[name] for one in found[1:]) for name in (*PARTS, "token")}


@dataclass(frozen=True, slots=True)
class Peer:
    """Who decodes, with which package, and how its rows are made; raises Cannot."""

    package: str
    what: str
    rows: Callable[[PeerSetup], dict[str, Run]] | None
    turns: int = TURNS


# transformers and ours are neighbours: their prefill takes about as long, and a machine's speed drifts
PEERS = {
    "llama.cpp": Peer("llama_cpp", f"plain, flash attention off, batches of {LLAMA_BATCH}", _llama_cpp),
    FLASH: Peer("llama_cpp", "plain, its flash attention on", partial(_llama_cpp, name=FLASH, flash=True)),
    LOOKUP: Peer(
        "llama_cpp",
        "its own n-gram drafts of up to 10 tokens",
        partial(_llama_cpp, name=LOOKUP, lookup=True),
        turns=1,
    ),
    "transformers, prompt lookup": Peer(
        "transformers",
        "its own n-gram drafts of up to 10 tokens",
        partial(_generate, name="transformers, prompt lookup", prompt_lookup_num_tokens=10),
        turns=1,
    ),
    "transformers, assisted": Peer(
        "transformers", "its own assisted generation with our trained draft model", _assisted, turns=1
    ),
    "transformers, offloaded cache": Peer(
        "transformers", "plain, with the KV cache in host memory", _offloaded, turns=1
    ),
    "transformers": Peer("transformers", "plain", _transformers),
    "ours": Peer("core", "plain, and TriForce at temperature 0, 0.6 and 1, after one prefill", _ours),
    BY_PART: Peer("core", "where the time of a plain token goes, up to 8K", None),
}


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("gguf", "book", "draft"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, default=0, help="0: as the plan says")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    parser.add_argument("--kept", type=Path, help="where the prompt's KV is kept")
    parser.add_argument("--peer", choices=tuple(PEERS), required=True)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
