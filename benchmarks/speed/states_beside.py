"""Layers with a state beside llama.cpp: one GGUF of random weights in a small Qwen3.5's shape, read and
answered by both in one process, one thread each, in turns.

    pip install xllamacpp
    python -m benchmarks.states_beside [--contexts 1024,8192] [--tokens 24] [--isa avx2] [--save NAME]

Times are processor time, which a busy machine leaves alone more than the clock; they are medians over turns,
of which long texts have one.
The time between tokens is that of all answered tokens behind the first, greedy. llama.cpp chooses its own
instructions, keeps keys and values in 16 bits, as we do, and rounds activations to 8 bits, as we do not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.lib import isa
from core.backend.cpu.threads import bound_spinning

bound_spinning()
isa.hold()

import torch

from benchmarks.lib.results import Table, save_result
from core.assembly.models import cpu_backend
from core.cache.full import FullKVCache
from core.cache.layered import with_side
from core.model.gguf.folder import opened
from core.model.loader import load_model
from tests.support.gguf_files import write_gguf

VOCAB = 32_768
# the 0.8B's layers, four of 24, and an eighth of its vocabulary
SHAPE = {
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 4,
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "intermediate_size": 3584,
    "vocab_size": VOCAB,
    "tie_word_embeddings": True,
    "max_position_embeddings": 262_144,
    "linear_num_value_heads": 16,
}
KINDS = {"": "Q4_K", "embed_tokens": "Q6_K", "in_proj_a": "F32", "in_proj_b": "F32"}
TURNS, LONG, TURNS_OF_LONG = 3, 4096, 1
CHUNK = 512


def random_file(folder: Path) -> Path:
    """The file."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**SHAPE), dtype=torch.float32)
    return write_gguf(folder / "states.gguf", model, KINDS)


class Ours:
    """This runtime's plain decoding."""

    def __init__(self, file: Path, most: int) -> None:
        self._backend = cpu_backend(torch.float32, storage=torch.bfloat16, threads=1)
        self._model = load_model(opened(file), self._backend, positions=most)
        self._most = most

    def times(self, ids: list[int], tokens: int) -> tuple[float, float]:
        """Seconds of reading `ids`, the first token included, and of each of `tokens` more."""
        shape = self._model.config.kv_shape
        full = FullKVCache(shape.of_full, self._most, self._backend, dtype=torch.bfloat16)
        cache = with_side(shape, full, room=64)
        sizes: dict[str, Any] = {"segment_tokens": 4 * CHUNK, "chunk_tokens": CHUNK}
        with torch.inference_mode():
            started = time.process_time()
            for _done in self._model.prefill(ids[:-1], cache, **sizes, should_stop=lambda: False):
                pass
            token = self._next(ids[-1], cache)
            read = time.process_time() - started
            for _number in range(tokens):
                token = self._next(token, cache)
        return read, (time.process_time() - started - read) / tokens

    def _next(self, token: int, cache: Any) -> int:
        found = int(self._model.forward([token], cache)[0].argmax())
        cache.commit(cache.length)
        return found


class LlamaCpp:
    """llama.cpp's server in this process."""

    def __init__(self, file: Path, most: int) -> None:
        import xllamacpp

        given = xllamacpp.CommonParams()
        given.model.path, given.n_ctx, given.n_parallel, given.warmup = str(file), most, 1, False
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
        self._server = xllamacpp.Server(given)

    def times(self, ids: list[int], tokens: int) -> tuple[float, float]:
        """Likewise, by its own clock's shares of the processor time that an answer takes."""
        asked = {"prompt": ids, "n_predict": 1 + tokens, "temperature": 0.0, "cache_prompt": False}
        started = time.process_time()
        said = self._server.handle_completions({**asked, "ignore_eos": True, "timings_per_token": True})
        taken, timings = time.process_time() - started, said["timings"]
        assert (timings["prompt_n"], timings["predicted_n"]) == (len(ids), 1 + tokens), timings
        share = timings["predicted_ms"] / (timings["predicted_ms"] + timings["prompt_ms"])
        return taken * (1 - share), taken * share / tokens


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contexts", type=lambda text: [int(one) for one in text.split(",")], default="1024")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    isa.add_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, turns = [], {}
    with tempfile.TemporaryDirectory() as folder:
        file = random_file(Path(folder))
        most = max(options.contexts) + options.tokens + 64
        peers = {"ours": Ours(file, most), "llama.cpp": LlamaCpp(file, most)}
        dice = torch.Generator().manual_seed(1)
        for context in options.contexts:
            ids = torch.randint(VOCAB - 2, (context,), generator=dice).tolist()
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in peers}
            for _turn in range(TURNS if context < LONG else TURNS_OF_LONG):
                for name, peer in peers.items():
                    found[name].append(peer.times(ids, options.tokens))
                    print(context, name, found[name][-1], flush=True)
            turns[context] = found
            for at, what, unit in ((0, "reading, s", 1), (1, "a token, ms", 1e3)):
                both = [[turn[at] * unit for turn in found[name]] for name in peers]
                ratio = median(theirs / ours for ours, theirs in zip(*both, strict=True))
                rows.append((context, what, *(round(median(one), 3) for one in both), round(ratio, 2)))
    table = Table(
        "Four layers of Qwen3.5-0.8B's shape beside llama.cpp, one thread, processor time",
        ("tokens before", "what", "ours", "llama.cpp", "llama.cpp / ours"),
        tuple(rows),
        notes=("Medians over three turns, behind longer texts one; the ratio is the median over turns.",),
    )
    print(*table.rows, sep="\n")
    told = {"llama.cpp": version("xllamacpp"), "turns": turns, "shape": SHAPE, "kinds": KINDS}
    if options.save:
        save_result(options.save, [table], details=told)


if __name__ == "__main__":
    main()
