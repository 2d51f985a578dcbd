"""Loading never holds the weights twice: a model that just fits must also load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support.gguf_files import write_gguf

pytestmark = pytest.mark.wide

HIDDEN, WIDE, LAYERS, VOCAB, HEAD = 512, 2048, 8, 8192, 64
MEASURE = """
import sys, threading, time
from pathlib import Path
import torch
from core.backend.cpu.backend import CpuBackend
from core.model.config import load_config
from core.model.loader import load_model

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

def watch():
    while not done.is_set():
        seen.append(anonymous())
        time.sleep(0.0005)

torch.set_num_threads(1)
load_config(Path(sys.argv[1]))             # imports what it needs
backend, done, seen = CpuBackend(torch.bfloat16), threading.Event(), []
before = anonymous()
thread = threading.Thread(target=watch)
thread.start()
model = load_model(Path(sys.argv[1]), backend, positions=64)
done.set()
thread.join()
print(max(seen) - before)
"""


def checkpoint(folder: Path) -> int:
    """A random Llama in bfloat16, in two files; returns its bytes."""
    config = {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": HEAD,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128,
        "tie_word_embeddings": False,
        "rope_theta": 10000.0,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "hidden_act": "silu",  # all is stated, so nothing large is imported to fill in defaults
        "torch_dtype": "bfloat16",
        "architectures": ["LlamaForCausalLM"],
    }
    sizes = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "lm_head.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}."
        sizes |= {f"{stem}self_attn.{one}_proj.weight": (HIDDEN, HIDDEN) for one in "qkvo"}
        sizes |= {f"{stem}mlp.{one}_proj.weight": (WIDE, HIDDEN) for one in ("gate", "up")}
        sizes |= {f"{stem}mlp.down_proj.weight": (HIDDEN, WIDE)}
        sizes |= {f"{stem}{one}_layernorm.weight": (HIDDEN,) for one in ("input", "post_attention")}
    tensors = {name: torch.ones(size, dtype=torch.bfloat16) for name, size in sizes.items()}
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, of_file in shards.items():
        save_file({name: tensors[name] for name in of_file}, folder / file, metadata={"format": "pt"})
    index = {"weight_map": {name: file for file, of_file in shards.items() for name in of_file}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
    return sum(tensor.nbytes for tensor in tensors.values())


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read as Linux tells it")
def test_loading_takes_little_more_memory_than_the_weights(tmp_path: Path):
    """The file is mapped, not read; what is stacked for one product is one layer's, not the model's."""
    weights = checkpoint(tmp_path)
    said = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert said.returncode == 0, said.stderr
    assert int(said.stdout) < 1.3 * weights


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read as Linux tells it")
def test_loading_a_gguf_takes_little_more_memory_than_the_file(tmp_path: Path):
    """Codes are held once, and the file's own bytes of one tensor at a time beside them."""
    from transformers import AutoConfig, AutoModelForCausalLM

    checkpoint(tmp_path)
    # large enough that what any program takes by the way is small beside it
    config = AutoConfig.from_pretrained(tmp_path, num_hidden_layers=4 * LAYERS)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    file = write_gguf(tmp_path / "model.gguf", model, {"": "Q4_K", "v_proj": "Q6_K", "down_proj": "Q6_K"})
    environment = os.environ | {"TRIFORCE_HOME": str(tmp_path / "home")}
    measure = MEASURE.replace("Path(sys.argv[1])", "opened(Path(sys.argv[1]))").replace(
        "import load_model", "import load_model\nfrom core.model.gguf.folder import opened"
    )
    said = subprocess.run(
        [sys.executable, "-c", measure, str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).resolve().parents[2],
        env=environment,
    )
    assert said.returncode == 0, said.stderr
    one_layer = 2 * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * WIDE)
    assert int(said.stdout) < 1.15 * file.stat().st_size + one_layer
