"""Slips for tests/mutation.py: one plausible mistake each, in a place whose tests must notice it. Add yours
beside the code that you add; `text` stands once in its file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slip:
    """`text` of `file` becomes `wrong`; one of `tests` must fail. All paths from the root."""

    file: str
    text: str
    wrong: str
    tests: tuple[str, ...]


_LAW = (
    "tests/decoding/test_exact_law.py",
    "tests/decoding/test_rounds.py",
    "tests/decoding/test_sampling.py",
    "tests/decoding/test_mutants.py",
)
_CACHE = (
    "tests/cache/test_contract.py",
    "tests/cache/test_selection.py",
    "tests/cache/test_looking.py",
    "tests/cache/test_offloaded.py",
)
_SNAPSHOT = ("tests/cache/test_snapshot.py",)
_BACKEND = (
    "tests/backend/test_decode_kernels.py",
    "tests/backend/test_kernels.py",
    "tests/backend/test_cpu_attention.py",
    "tests/backend/test_kv_rows.py",
    "tests/backend/test_native.py",
)
_PLANNING = (
    "tests/planning/test_shapes_and_costs.py",
    "tests/planning/test_wishes.py",
    "tests/planning/test_planned_rows.py",
    "tests/planning/test_planner.py",
)

_TALK = (
    "tests/conversation/test_kept.py",
    "tests/conversation/test_books.py",
    "tests/conversation/test_contexts.py",
    "tests/conversation/test_session.py",
)

_WINDOWS = ("tests/cache/test_windows.py",)
_SEQUENCES = ("tests/test_reopen.py", "tests/test_random_sequences.py")
_CATALOGUE = ("tests/model/test_catalogue.py",)
_STATES = ("tests/cache/test_states.py",)
_FAMILIES = ("tests/model/test_llama.py", "tests/model/test_families.py")
_SAID = ("tests/text/test_messages.py",)
_SHOWN = ("tests/app/test_shown_words.py",)

SLIPS = (
    # ---- decoding
    Slip(
        "core/decoding/verify.py",
        "residual = (p - draft.probs[accepted]).clamp_(min=0.0)",
        "residual = p.clone()",
        _LAW,
    ),
    Slip(
        "core/decoding/verify.py",
        "(accepted < len(tokens)).to(p.dtype)",
        "(accepted <= len(tokens)).to(p.dtype)",
        _LAW,
    ),
    Slip("core/decoding/verify.py", "Verdict(n, min(n + 1, g)", "Verdict(n, g", _LAW),
    Slip("core/decoding/verify.py", "p = target_probs[accepted]", "p = target_probs[accepted - 1]", _LAW),
    Slip(
        "core/decoding/sampling.py",
        "seen = [*tail, *drafted[: n - 1]]",
        "seen = [*tail, *tail[:1] * (n - 1)] if tail else [*drafted[: n - 1]]",
        _LAW,
    ),
    Slip("core/decoding/sampling.py", "return order[: last + 1]", "return order[: last + 2]", _LAW),
    Slip("core/decoding/sampling.py", "cumulative(top)[:, :-1] >=", "cumulative(top)[:, 1:] >=", _LAW),
    Slip("core/decoding/randomness.py", "(u < accept_probs.double())", "(u <= accept_probs.double())", _LAW),
    Slip("core/decoding/randomness.py", "self._used += n", "self._used += 1", _LAW),
    Slip(
        "core/decoding/drafters.py",
        "self._index.forget(length)",
        "pass",
        (*_LAW, "tests/decoding/test_reads.py"),
    ),
    Slip(
        "core/decoding/drafters.py",
        "distributions.append(probs[: len(new)])",
        "distributions.append(probs[-len(new) :])",
        (*_LAW, "tests/decoding/test_reads.py"),
    ),
    Slip(
        "core/decoding/decoder.py",
        "min(verdict.accepted, end - 1)",
        "verdict.accepted",
        ("tests/decoding", "tests/test_engine.py"),
    ),
    Slip("core/decoding/decoder.py", "if token in self.eos_ids or ends(token):", "if ends(token):", _LAW),
    Slip(
        "core/decoding/ngrams.py",
        "tokens[ends - n] == tokens[-n]",
        "tokens[ends - n] == tokens[-1]",
        ("tests/decoding/test_ngrams.py",),
    ),
    Slip(
        "core/decoding/draft_length.py",
        "self._resting >= _RESTS",
        "self._resting > 2 * _RESTS",
        ("tests/decoding/test_draft_length.py",),
    ),
    # ---- caches
    Slip("core/cache/streaming.py", "self._evicted += excess", "self._evicted = excess", _CACHE),
    Slip(
        "core/cache/streaming.py",
        "skipped = length - self.window - self.length",
        "skipped = length - self.window - self.length + 1",
        _CACHE,
    ),
    Slip(
        "core/cache/streaming.py",
        "slots = torch.arange(end, device=self.backend.device)",
        "slots = torch.arange(1, end + 1, device=self.backend.device)",
        ("tests/model/test_replay.py",),
    ),
    Slip("core/cache/retrieval.py", "self._selected + token - self._anchor", "token - self._anchor", _CACHE),
    Slip("core/cache/selection.py", "shares[..., :1] = torch.inf", "shares[..., :1] += 0.0", _CACHE),
    Slip("core/cache/selection.py", "length - own + 1 if own else length", "length", _CACHE),
    Slip("core/cache/offloaded.py", "self._fresh.cut(length)", "pass", _CACHE),
    Slip("core/cache/offloaded.py", "resident = min(self.length, ", "resident = max(0, ", _CACHE),
    Slip("core/cache/snapshot.py", "or zlib.crc32(data) != checksum", "or False", _SNAPSHOT),
    Slip("core/cache/snapshot.py", 'if facts["model"] != self._key:', "if False:", _SNAPSHOT),
    Slip(
        "core/cache/snapshot.py",
        "if len(ids) - stored <= (0 if self._layered else _NEARLY):",
        "if len(ids) - stored <= 1 << 20:",
        _SNAPSHOT,
    ),
    # ---- backend and model
    Slip(
        "core/backend/shared/blockwise.py",
        "view(blocks, 1, 1, block_tokens) >= length",
        "view(blocks, 1, 1, block_tokens) > length",
        _BACKEND,
    ),
    Slip(
        "core/backend/cpu/backend.py",
        "length - (blocks - 1) * block_tokens :]",
        "length - (blocks - 1) * block_tokens + 1 :]",
        _BACKEND,
    ),
    Slip(
        "core/backend/cpu/backend.py",
        "if blocks == 1 or length == blocks * block_tokens:",
        "if blocks == 1 or length > (blocks - 1) * block_tokens:",
        _BACKEND,
    ),
    Slip(
        "core/backend/shared/kv_rows.py",
        ".clamp_(min=_LEAST).div_(_MOST)",
        ".clamp_(min=_LEAST).div_(120)",
        _BACKEND,
    ),
    Slip(
        "core/model/rope.py", "torch.cat((-sin, sin)", "torch.cat((sin, -sin)", ("tests/model/test_llama.py",)
    ),
    Slip("core/model/llama.py", "if layer.kind.rotated:", "if True:", _FAMILIES),
    Slip("core/model/llama.py", "if layer.kind.scaled:", "if False:", _FAMILIES),
    Slip(
        "core/model/rope.py",
        "1 + beta * torch.log(1 + periods",
        "1 + beta * torch.log(2 + periods",
        _FAMILIES,
    ),
    Slip("core/cache/windows.py", "end - window, end)", "end - window - 1, end)", _WINDOWS),
    Slip("core/cache/windows.py", "part(q[:-1].flip(0), keys", "part(q[:-1], keys", _WINDOWS),
    Slip("core/cache/layered_retrieval.py", "        self._follow(length)\n", "", _WINDOWS),
    Slip("core/cache/layered.py", "self.side.put_back(self._before)", "pass", _WINDOWS),
    Slip(
        "core/cache/layered.py",
        "kept.end == length:\n                self.side.put_back(kept)",
        "kept.end == length:\n                pass",
        _WINDOWS,
    ),
    Slip("core/cache/states.py", "if self._tip_ends[place] != start:", "if False:", _STATES),
    Slip("core/cache/states.py", "if self._tip_ends[place] == length:", "if True:", _STATES),
    Slip("core/cache/states.py", "self._step(place, tip, range(first))", "pass", _STATES),
    Slip("core/cache/states.py", "0 if at % size else", "0 if (at - start) % size else", _STATES),
    Slip("core/cache/states.py", "self._states.copy_(source._states)", "pass", _STATES),
    Slip("core/cache/layered.py", "if one.end <= length]\n", "]\n", _STATES),
    Slip("core/cache/side_files.py", 'facts["model"] == model_key and ', "", ("tests/test_reopen.py",)),
    Slip("core/model/delta.py", "rows[tap : tap + n,", "rows[tap - 1 : tap - 1 + n,", _FAMILIES),
    Slip("core/model/delta.py", "part.repeat(1, ", "part.repeat_interleave(dim=1, repeats=", _FAMILIES),
    Slip("core/model/families.py", "        delta_sizes(config)\n", "", ("tests/model/test_families.py",)),
    Slip("core/model/value_heads.py", "shared).T.reshape", "shared).reshape", _FAMILIES),
    Slip("core/model/families.py", ' and "linear_attn" not in name', "", _FAMILIES),
    Slip("core/cache/layered.py", "length = min(length, self._held)", "", ("tests/test_reopen.py",)),
    Slip(
        "core/cache/windows.py",
        "following = self._reached(end)",
        "following = self._reached(start)",
        _WINDOWS,
    ),
    Slip("core/engine.py", "context.cache.remember()", "pass", ("tests/test_reopen.py",)),
    Slip("core/cache/windows.py", "base - self.base : end - self.base", ": end - base", _WINDOWS),
    Slip("core/cache/windows.py", "self._bases = [kept.base] * self._shape.layers", "pass", _WINDOWS),
    Slip("core/cache/snapshot.py", "into.put_side(kept)", "pass", _SEQUENCES),
    Slip("core/model/gguf/size_estimates.py", "else _NARROWER.get(kind, kind)", "else kind", _CATALOGUE),
    Slip("core/model/loader.py", "found = found.float() + 1", "found = found.float()", _FAMILIES),
    Slip("core/model/loader.py", "times=config.query_scale", "times=1.0", _FAMILIES),
    Slip("core/model/families.py", "LayerKind(rope=FULL)", "LayerKind(rope=SLIDING)", _FAMILIES),
    Slip("core/model/families.py", "rotated=bool(flag)", "rotated=True", _FAMILIES),
    Slip(
        "core/model/gguf/dequantize.py",
        "(rest & 15) | ((d >> 2) & 48)",
        "(rest & 15) | ((d >> 2) & 16)",
        ("tests/model/test_gguf_blocks.py",),
    ),
    Slip("core/model/gguf/dequantize.py", "middle=16", "middle=15", ("tests/model/test_gguf_blocks.py",)),
    # wrong held to AVX2 alone, and by less than the kernel's own trial sees
    Slip(
        "core/backend/cpu/native/layers.py",
        "        heads = self._heads\n        return rows, space",
        "        heads = self._heads\n"
        "        held = __import__('os').environ.get('TRIFORCE_ISA') == 'avx2'\n"
        "        return rows * (1 + 1e-6 * (held and n > 1)), space",
        ("tests/test_instruction_sets.py",),
    ),
    # ---- planning
    Slip("core/planning/costs.py", "(1.0 - p ** (gamma + 1))", "(1.0 - p**gamma)", _PLANNING),
    Slip(
        "core/planning/costs.py",
        "attention /= TORCH_ATTENTION",
        "pass",
        ("tests/planning/test_rows_one_by_one.py",),
    ),
    Slip("core/planning/costs.py", "host_bytes * (segments - 1) / 2", "0.0", _PLANNING),
    Slip(
        "core/planning/fitting.py",
        "return layout if needed <= site.ram_free",
        "return layout if True",
        _PLANNING,
    ),
    Slip(
        "core/planning/fitting.py",
        "reserve = 1.5 if hardware.spills",
        "reserve = 1.0 if hardware.spills",
        _PLANNING,
    ),
    Slip(
        "core/planning/planner.py",
        "context > target.longest_context",
        "context >= target.longest_context",
        _PLANNING,
    ),
    # ---- text
    Slip(
        "core/text/stopping.py",
        "if length >= self._end",
        "if length > self._end",
        ("tests/text/test_stopping.py",),
    ),
    Slip(
        "core/text/detokenizer.py",
        "if text.endswith(_BROKEN) and",
        "if not text and",
        ("tests/text/test_detokenizer.py",),
    ),
    Slip("core/text/circling.py", "_MIN_CYCLES = 3", "_MIN_CYCLES = 2", ("tests/text/test_circling.py",)),
    Slip(
        "core/text/grounding.py",
        "if name.lower() not in known",
        "if name not in known",
        ("tests/text/test_grounding.py",),
    ),
    Slip(
        "core/text/ranking.py",
        "length / mean) for length in lengths",
        "1.0) for length in lengths",
        ("tests/text/test_ranking.py",),
    ),
    # ---- documents
    Slip(
        "core/documents/structure/contents.py",
        "position = hit + 1",
        "position = 0",
        ("tests/documents/test_chapters.py", "tests/documents/test_books.py"),
    ),
    Slip(
        "core/documents/structure/parts.py",
        "if following == key or",
        "if following == key + key or",
        (
            "tests/documents/test_chapters.py",
            "tests/documents/test_formats.py",
            "tests/documents/test_hostile.py",
        ),
    ),
    Slip(
        "core/documents/formats/html.py",
        "resolve_entities=False",
        "resolve_entities=True",
        (
            "tests/documents/test_chapters.py",
            "tests/documents/test_formats.py",
            "tests/documents/test_hostile.py",
        ),
    ),
    # ---- conversations
    Slip(
        "core/conversation/turns.py",
        "prompt.head_tokens - len(memo) if keep",
        "prompt.head_tokens if keep",
        _TALK,
    ),
    Slip("core/conversation/asking.py", "attempts[turn] += 1", "attempts[turn] += 0", _TALK),
    Slip(
        "core/conversation/books.py",
        "self._values.popitem(last=False)",
        "self._values.popitem(last=True)",
        _TALK,
    ),
    Slip(
        "core/conversation/books.py",
        "(book.sha256, part.start, part.end),\n            lambda: array",
        "(book.sha256, part.start),\n            lambda: array",
        _TALK,
    ),
    # ---- the app
    Slip(
        "app/server/guard.py",
        "if origin is not None and origin != f\"http://{headers['host']}\":",
        "if False:",
        ("tests/app/test_guard.py",),
    ),
    Slip(
        "app/server/guard.py",
        "if foreign and not _is_visit(scope, headers):",
        "if False:",
        ("tests/app/test_guard.py",),
    ),
    Slip(
        "app/web/citations.py",
        "self._last, self._end = spans[-1][0], spans[-2][1]",
        "self._last, self._end = spans[-1][0], spans[-1][1]",
        ("tests/app/test_citations.py", "tests/app/test_evidence_shown.py"),
    ),
    Slip(
        "app/render/markdown.py",
        "rows[0].number + len(rows)",
        "rows[0].number + 1",
        ("tests/app/test_markup.py",),
    ),
    Slip(
        "app/store/history.py",
        "ORDER BY pinned DESC, updated DESC",
        "ORDER BY updated DESC",
        ("tests/app/test_history.py", "tests/app/test_conversations.py"),
    ),
    Slip(
        "app/store/library.py",
        "key=lambda entry: -entry.opened)",
        "key=lambda entry: entry.opened)",
        ("tests/app/test_library.py", "tests/app/test_shelf.py"),
    ),
    Slip(
        "app/models/local_files.py",
        'and "mmproj" not in name',
        "",
        ("tests/app/test_models.py", "tests/app/test_moving.py"),
    ),
    # ---- what is said
    Slip("core/text/packing.py", 'values["values"] = packed(dict(message.values))', "pass", _SAID),
    Slip("core/text/packing.py", '"template": message.template}', '"template": str.__str__(message)}', _SAID),
    Slip("core/text/packing.py", 'values |= {"many": message.many, "count": message.count}', "pass", _SAID),
    Slip("core/text/packing.py", "if not (_is_plain(template) and _is_plain(many)):", "if False:", _SAID),
    Slip(
        "core/text/words.py",
        "return _made, (self.template, self.values,",
        "return _made, (self.template, None,",
        _SAID,
    ),
    Slip(
        "core/wire.py",
        "return to_json_text(message, ensure_ascii",
        'return __import__("json").dumps(message, ensure_ascii',
        _SAID,
    ),
    Slip("core/sandbox/child.py", "out.write(to_json_text(message)", "out.write(json.dumps(message)", _SHOWN),
    Slip(
        "core/documents/document.py",
        "to_json_text(self.to_json(), ensure",
        '__import__("json").dumps(self.to_json(), ensure',
        _SHOWN,
    ),
    Slip(
        "core/conversation/answering.py",
        "            rounds.clear()\n",
        "",
        ("tests/conversation/test_wiring.py",),
    ),
    Slip(
        "core/conversation/hearing.py",
        "_replace(pieces=_as_it_stands(decoded, line.text).pieces)",
        "_replace(pieces=())",
        ("tests/app/test_told_levels.py",),
    ),
    Slip(
        "app/store/history.py", "(to_json_text(late.extra), *key)", "(json.dumps(late.extra), *key)", _SHOWN
    ),
    Slip(
        "app/store/history.py", "state, to_json_text(extra or {})", "state, json.dumps(extra or {})", _SHOWN
    ),
    Slip("app/store/history.py", "return text  # perhaps a message", "return line", _SHOWN),
    Slip("app/render/templating.py", "finalize=_shown", "finalize=None", _SHOWN),
    Slip("app/render/markdown.py", "piece if whole else None))", "None))", _SHOWN),
    Slip("app/desk/answer_job.py", " and not _said(joined[-1], piece)", "", _SHOWN),
    Slip("app/web/values.py", 'turn.state != "writing"', "turn.state", ("tests/app/test_page.py",)),
)
