"""Tiny models for a real SGLang on a CPU, with drafters whose acceptance can be chosen.

Run by path with the server's Python, which has torch and transformers:

    models.py FOLDER --seed 0 --noise 0.0 0.1 0.2 0.3

- `tiny-llama`: random weights. Its next token depends on the whole context, so it tells right attention from wrong.
- `markov`: a target whose next token depends on the last one alone, since attention and MLP add nothing to the
  residual stream. The work of a step is a Llama's all the same.
- `markov-eagle-N`: EAGLE drafters of `markov`. A drafter passes the token's embedding on through `fc`, the identity
  plus N times random noise: noiseless, it predicts the target exactly; the more noise, the fewer tokens are accepted.

At the default size a verify step costs far more than a draft step, so a good drafter pays. The same seed gives the
same files, and a drafter does not depend on which others are made.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HIDDEN, LAYERS = 768, 12
CONTEXT_TOKENS = 2048
#: Ids 0 to 1999 are text, so that prompts of random ids below this hold no special token; then come the special ones.
TEXT_TOKENS = 2000
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
#: Above what the tokenizer has: the vocabulary is shared out among ranks in multiples of 64.
VOCABULARY = 2048
_CHAT = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

Weights = dict[str, torch.Tensor]


def save_tokenizer(folder: Path) -> None:
    """A byte-level BPE tokenizer learnt from made-up words. Raises RuntimeError if the text is too poor for it."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    draw = random.Random(0)
    words = ["".join(draw.choices(syllables, k=3)) for _ in range(5000)]
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT_TOKENS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator((f" {word}" for word in words), trainer)
    if tokenizer.get_vocab_size() != TEXT_TOKENS:
        raise RuntimeError(f"the tokenizer has {tokenizer.get_vocab_size()} tokens instead of {TEXT_TOKENS}")
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL.values()])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=CONTEXT_TOKENS, **SPECIAL)
    fast.chat_template = _CHAT
    fast.save_pretrained(folder)


def save_tiny_llama(folder: Path, seed: int) -> None:
    """A Llama with random weights and its tokenizer."""
    save_tokenizer(folder)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.03,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=TEXT_TOKENS,
        eos_token_id=TEXT_TOKENS + 1,
        pad_token_id=TEXT_TOKENS + 2,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    # A residual stream so large against the layers makes a token depend on all before it, on the nearest most; with
    # Llama's own initial weights it repeats one token. Of large logits, few are near ties.
    model.model.embed_tokens.weight.data.normal_(0, 3)
    model.lm_head.weight.data.normal_(0, 1)
    _only_text(model.lm_head.weight.data)
    model.to(torch.bfloat16).save_pretrained(folder)


def save_markov(tiny: Path, folder: Path, seed: int) -> Weights:
    """The target whose next token depends on the last one; its weights."""
    shutil.copytree(tiny, folder)
    weights: Weights = load_file(folder / "model.safetensors")
    _silence(weights)
    generator = torch.Generator().manual_seed(seed)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = torch.randn(weights[name].shape, generator=generator).to(torch.bfloat16)
    _only_text(weights["lm_head.weight"])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return weights


def save_eagle(tiny: Path, target: Weights, folder: Path, noise: float, seed: int) -> None:
    """An EAGLE drafter of `target`: a decoder layer, and `fc` from [embedding, target's hidden state] to its input.

    SGLang lends the drafter the target's embedding and head. EAGLE's only layer has no input norm.
    """
    config: dict[str, Any] = json.loads((tiny / "config.json").read_text())
    config |= {"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1}
    shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True))
    weights = {
        name.removeprefix("model."): weight.clone()
        for name, weight in load_file(tiny / "model.safetensors").items()
        if name.startswith("model.layers.0.") and "input_layernorm" not in name
    }
    _silence(weights)
    generator = torch.Generator().manual_seed(seed + 1)
    # Of unit length on average for a vector of unit length, so that `noise` is noise over signal.
    disturbance = torch.randn(HIDDEN, HIDDEN, generator=generator) / HIDDEN**0.5
    from_embedding = torch.eye(HIDDEN) + noise * disturbance
    weights["fc.weight"] = torch.cat([from_embedding, torch.zeros(HIDDEN, HIDDEN)], dim=1).to(torch.bfloat16)
    weights["fc.bias"] = torch.zeros(HIDDEN, dtype=torch.bfloat16)
    weights["embed_tokens.weight"] = target["model.embed_tokens.weight"].clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _silence(weights: Weights) -> None:
    """Let attention and MLP add nothing to the residual stream."""
    for name, weight in weights.items():
        if "o_proj" in name or "down_proj" in name:
            weight.zero_()


def _only_text(head: torch.Tensor) -> None:
    """A zero logit is never the largest of thousands of random ones: no generation ends early, all are text."""
    head[TEXT_TOKENS:] = 0


def save_all(root: Path, noises: Sequence[float], seed: int) -> None:
    """All models under `root`, which must not hold them yet."""
    tiny = root / "tiny-llama"
    save_tiny_llama(tiny, seed)
    target = save_markov(tiny, root / "markov", seed)
    for noise in noises:
        save_eagle(tiny, target, root / f"markov-eagle-{noise}", noise, seed)


def main(words: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make tiny models for a real SGLang on a CPU.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--noise", type=float, nargs="*", required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args(words)
    save_all(options.folder, options.noise, options.seed)


if __name__ == "__main__":
    main()
