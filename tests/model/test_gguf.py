"""A GGUF runs as it is: its model computes what transformers computes from the same decoded weights."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.backend.cpu.native.layers import NativeModel, native_layers
from core.backend.cpu.native.library import instruction_sets
from core.backend.cpu.native.products import native_products
from core.errors import UserError
from core.hardware.cpu import cpu_flags
from core.model import loader
from core.model.config import load_config
from core.model.gguf.config import bits_of, bytes_in_codes, config_of, format_of
from core.model.gguf.folder import opened
from core.model.gguf.reader import damaged, no_gguf, read_header
from core.model.gguf.weights import GgufWeights
from core.model.loader import load_model
from core.model.store.manifest import fingerprint
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import IDS, MIXED, as_stored, logits, wide
from tests.support.said import worded_by
from tests.support.tiny import ALIKE, FAMILIES


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))


def whole_layers() -> CpuBackend:
    """With everything that is compiled for this computer."""
    flags = cpu_flags()
    attention, products = native_attention(flags), native_products(flags)
    layers = native_layers(flags, attention, products)
    return CpuBackend(native=attention, products=products, layers=layers)


BACKENDS = {
    "torch": lambda: CpuBackend(),
    "compiled": lambda: CpuBackend(products=native_products(cpu_flags())),
    "whole layers": whole_layers,
}


@pytest.mark.parametrize("how", BACKENDS)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_decoded_weights(tmp_path, family, tied, how):
    """Every family with mixed kinds: rows of q and k in their order, biases, norms of q and k, tied
    embeddings.
    """
    model = wide(family, tied=tied)
    file = write_gguf(tmp_path / "model.gguf", model, MIXED)
    with torch.inference_mode():
        want = as_stored(model, file)(torch.tensor([IDS])).logits[0]
    backend = BACKENDS[how]()
    scale = float(want.std())
    assert scale > 0.1
    for found in (
        logits(file, backend),
        logits(file, backend, one_by_one=True),
        logits(file, backend, in_codes=False),
    ):
        assert float((found - want).abs().max()) < 1e-4 * max(1.0, scale)


@pytest.mark.parametrize("family", ALIKE)
def test_layers_that_are_alike_are_one_call_for_few_rows(tmp_path, monkeypatch, family):
    if not instruction_sets(cpu_flags()):
        pytest.skip("no library for this computer")
    backend = whole_layers()  # whose trial passes are not to be counted
    calls, run = [], NativeModel.__call__
    monkeypatch.setattr(NativeModel, "__call__", lambda *given: calls.append(run(*given)) or calls[-1])
    logits(write_gguf(tmp_path / "model.gguf", wide(family), MIXED), backend, one_by_one=True)
    assert len(calls) == len(IDS)
    assert None not in calls


@pytest.mark.parametrize(
    "kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "Q4_K", "Q5_K", "Q6_K"]
)
def test_every_kind_runs(tmp_path, kind):
    model = wide()
    file = write_gguf(tmp_path / "model.gguf", model, kind)
    with torch.inference_mode():
        want = as_stored(model, file)(torch.tensor([IDS])).logits[0]
    found = logits(file, BACKENDS["compiled"]())
    assert float((found - want).abs().max()) < 1e-4 * max(1.0, float(want.std()))


def test_another_order_of_rows_would_show(tmp_path, monkeypatch):
    """A llama's q and k as they stand in the file compute something else."""
    model = wide()
    file = write_gguf(tmp_path / "model.gguf", model, "Q8_0")
    right = logits(file, CpuBackend())
    monkeypatch.setattr(GgufWeights, "order", lambda *args: None)
    assert float((logits(file, CpuBackend()) - right).abs().max()) > 0.1


def test_factors_of_llama_3(tmp_path):
    """They come as a tensor; transformers computes them from four numbers."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    given = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0}
    given |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    model = wide(rope=given)
    frequencies, _scale = ROPE_INIT_FUNCTIONS["llama3"](model.config, torch.device("cpu"))
    plain = 1.0 / 10000.0 ** (torch.arange(0, 64, 2) / 64)
    file = write_gguf(tmp_path / "model.gguf", model, "Q8_0", factors=(plain / frequencies).tolist())
    with torch.inference_mode():
        want = as_stored(model, file)(torch.tensor([IDS * 10])).logits[0]
    assert float((logits(file, CpuBackend(), IDS * 10) - want).abs().max()) < 1e-4 * float(want.std())


def test_yarn(tmp_path):
    given = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 128,
    }
    model = wide("qwen2", rope=given)
    said = {"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": 4.0}
    said |= {"qwen2.rope.scaling.original_context_length": 128}
    file = write_gguf(tmp_path / "model.gguf", model, "Q8_0", metadata=said)
    with torch.inference_mode():
        want = as_stored(model, file)(torch.tensor([IDS * 10])).logits[0]
    assert float((logits(file, CpuBackend(), IDS * 10) - want).abs().max()) < 1e-4 * float(want.std())


def test_what_it_says_of_itself(tmp_path):
    file = write_gguf(tmp_path / "model.gguf", wide(), MIXED, metadata={"general.file_type": 15})
    header = read_header(file)
    coded, weights = bytes_in_codes(header)
    assert (format_of(header), bits_of(header)) == ("Q4_K_M", 4)
    held = sum(tensor.nbytes for tensor in header.tensors.values())
    assert 0.95 * held < coded < 1.05 * held
    assert weights == sum(value.numel() for value in wide().parameters() if value.ndim == 2)
    assert load_config(opened(file)).eos_ids == {319}


@pytest.mark.parametrize(("kind", "ends"), [(3, [5, 319]), (4, [5, 319]), (1, [5])])
def test_the_end_of_a_turn_ends_an_answer_whatever_the_file_calls_its_end(tmp_path, kind, ends):
    """Files of fine-tuned models name the end of a document alone, and mark the turn's as added by somebody:
    such a model went on asking itself.
    """
    header = read_header(write_gguf(tmp_path / "model.gguf", wide(), "Q8_0"))
    kinds = [*header.metadata["tokenizer.ggml.token_type"][:-1], kind]
    said = {"tokenizer.ggml.token_type": kinds, "tokenizer.ggml.eos_token_id": 5}
    assert config_of(replace(header, metadata=header.metadata | said), "x")["eos_token_id"] == ends


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("llama.expert_count", 8, "experts"),
        ("llama.rope.dimension_count", 32, "rope.dimension_count"),
        ("llama.attention.sliding_window", 128, "sliding"),
        ("llama.rope.scaling.type", "longrope", "longrope"),
    ],
)
def test_what_does_not_run_is_refused_by_name(tmp_path, key, value, said):
    metadata = {key: value} | ({"llama.rope.scaling.factor": 2.0} if "scaling" in key else {})
    file = write_gguf(tmp_path / "model.gguf", wide(), "Q8_0", metadata=metadata)
    with pytest.raises(UserError, match=said):
        load_config(opened(file))


def test_loading_says_how_far_it_is(tmp_path):
    """Minutes of a large file in silence look like a program that hangs: a share for every layer."""
    file, said = write_gguf(tmp_path / "model.gguf", wide(), MIXED), []
    load_model(
        opened(file), CpuBackend(), positions=64, progress=lambda stage, share: said.append((stage, share))
    )
    assert [share for _stage, share in said] == [0.5, 1.0]
    assert len(worded_by(loader, *(stage for stage, _share in said))) == 2


# ---- damaged files -----------------------------------------------------------------------------------------


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    """It was "damaged or cut short: “GGUF” ends behind it"."""
    (tmp_path / "m.gguf").touch()
    with pytest.raises(UserError, match="0 bytes"):
        read_header(tmp_path / "m.gguf")


def test_a_file_of_zeros_is_said_to_be_none_or_damaged(tmp_path):
    """Where a download has reserved its room and got no further; behind its first bytes it was "of type
    unknown".
    """
    file = tmp_path / "m.gguf"
    file.write_bytes(bytes(4096))
    with pytest.raises(UserError) as said:
        read_header(file)
    assert worded_by(no_gguf, said.value.args[0])
    file.write_bytes(struct.pack("<4sI", b"GGUF", 3) + bytes(4096))
    with pytest.raises(UserError) as said:
        config_of(read_header(file), "m")
    assert worded_by(damaged, said.value.args[0]) and worded_by(config_of, said.value.args[0])


def test_a_file_cut_short_is_refused_by_the_tensor(tmp_path):
    """Wherever it ends: in the header, or in some tensor."""
    file = write_gguf(tmp_path / "model.gguf", wide(), "Q8_0")
    whole, header = file.read_bytes(), read_header(file)
    last = max(header.tensors.values(), key=lambda one: one.start)
    for size in (*range(1, 400, 7), 3000, last.start + 1, last.start + last.nbytes - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(UserError, match="damaged or cut short|no GGUF"):
            read_header(file)
    with pytest.raises(UserError, match=last.name):
        read_header(file)


def test_numbers_that_lie_are_refused(tmp_path):
    """Counts, lengths, sizes, kinds and offsets are checked before anything is made of them."""
    file = write_gguf(tmp_path / "model.gguf", wide(), "Q8_0")
    whole = file.read_bytes()
    name = b"blk.0.attn_q.weight"
    at = whole.index(name) + len(name)
    huge = 1 << 60
    lies = {
        8: struct.pack("<Q", huge),  # tensors
        16: struct.pack("<Q", huge),  # settings
        24: struct.pack("<Q", huge),  # length of a name
        at: struct.pack("<I", 77),  # dimensions
        at + 4: struct.pack("<Q", huge),  # a size
        at + 20: struct.pack("<I", 99),  # a kind
        at + 24: struct.pack("<Q", huge),  # an offset
    }
    for place, lie in lies.items():
        file.write_bytes(whole[:place] + lie + whole[place + len(lie) :])
        with pytest.raises(UserError) as refused:
            read_header(file)
        if place >= at:
            assert "blk.0.attn_q.weight" in str(refused.value)


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    file = write_gguf(tmp_path / "model.gguf", wide(), "Q8_0")
    weights = GgufWeights(read_header(file))
    file.write_bytes(file.read_bytes()[:100_000])
    with pytest.raises(UserError, match="blk.1.ffn_down.weight"):
        weights.planes("model.layers.1.mlp.down_proj")


def test_kinds_that_do_not_run_are_named(tmp_path):
    file = write_gguf(tmp_path / "model.gguf", wide(), "Q8_0")
    whole = file.read_bytes()
    at = whole.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 20
    file.write_bytes(whole[:at] + struct.pack("<I", 10) + whole[at + 4 :])
    with pytest.raises(UserError, match=r"blk\.0\.attn_q\.weight.*Q2_K"):
        read_header(file)


# ---- keys --------------------------------------------------------------------------------------------------


def test_two_files_in_one_folder_share_nothing(tmp_path):
    """Q4 and Q8 of one model look alike by their configuration: what is kept must not be mixed."""
    one = write_gguf(tmp_path / "a.gguf", wide(), "Q8_0")
    other = write_gguf(tmp_path / "b.gguf", wide(), "Q5_0")
    assert config_of(read_header(one), "x") == config_of(read_header(other), "x")
    assert opened(one) != opened(other)
    assert fingerprint(opened(one)) != fingerprint(opened(other))


def test_a_file_is_known_by_its_content(tmp_path):
    """Moved it is the same; written over it is another. Its content is read once."""
    file = write_gguf(tmp_path / "model.gguf", wide(), "Q8_0")
    said = []
    known = fingerprint(opened(file, lambda stage, share: said.append(share)))
    assert said[-1] == 1.0
    said.clear()
    assert fingerprint(opened(file, lambda stage, share: said.append(share))) == known and not said
    (tmp_path / "moved").mkdir()
    moved = file.rename(tmp_path / "moved" / "model.gguf")
    folder = opened(moved)
    assert fingerprint(folder) == known
    assert GgufWeights(read_header(moved)).tensor("model.norm.weight").shape == (256,)
    write_gguf(moved, wide(), "Q5_0")
    assert fingerprint(opened(moved)) != known


def test_a_file_that_is_gone_is_named(tmp_path):
    file = write_gguf(tmp_path / "model.gguf", wide(), "Q8_0")
    folder = opened(file)
    file.unlink()
    with pytest.raises(UserError, match="is gone"):
        load_model(folder, CpuBackend(), positions=16)
