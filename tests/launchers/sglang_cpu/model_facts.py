"""What the tiny models compute, without SGLang. Run with the server's Python, which has torch and transformers:

    model_facts.py MODELS < {"prompts": [[ids], ...], "steps": 3, "tokens": 64, "answers": 4, "answer_tokens": 32}

Prints one JSON object: tokens per verify step of each drafter of `markov`, and of `tiny-llama` drafting for itself; the
greedy answers of `tiny-llama`, in float32, to the first prompts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

Map = Callable[[int], int]


def table(states: torch.Tensor, head: torch.Tensor) -> Map:
    following: list[int] = (states.float() @ head.float().T).argmax(1).tolist()
    return following.__getitem__


def chain_of_maps(target: Map, drafter: Map, last: int, tokens: int) -> list[bool]:
    """Of each token of an answer, whether the drafter says it after the one before."""
    right = []
    for _ in range(tokens):
        right.append(drafter(last) == target(last))
        last = target(last)
    return right


def tokens_per_verify(answers: list[list[bool]], steps: int) -> float:
    """Chains of `steps` drafted tokens are verified until each answer is there; its first token is the prefill's."""
    verified = 0
    for right in answers:
        at = 0
        while at < len(right) - 1:
            drafted = right[at + 1 : at + 1 + steps]
            at += 1 + (drafted.index(False) if False in drafted else len(drafted))
            verified += 1
    return sum(map(len, answers)) / verified


def greedy(model: LlamaForCausalLM, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], list[list[bool]]]:
    """Answers to prompts of one length; of each token, whether the model says it too without the prompt's first one.

    So does SGLang's STANDALONE draft: it is given the token after each of the target's, as EAGLE heads are.
    """
    ids = torch.tensor(prompts)
    whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False)
    answers = whole[:, ids.shape[1] :]
    with torch.no_grad():
        drafted = model(whole[:, 1:]).logits.argmax(-1)[:, ids.shape[1] - 2 : -1]
    return answers.tolist(), (drafted == answers).tolist()


def main(models: Path) -> None:
    # More threads wait for each other on a busy machine.
    torch.set_num_threads(1)
    asked = json.load(sys.stdin)
    target = load_file(models / "markov/model.safetensors")
    embedding, head = target["model.embed_tokens.weight"], target["lm_head.weight"]
    following = table(embedding, head)
    lengths = {}
    for folder in sorted(models.glob("markov-eagle-*")):
        # The second half of fc, for the target's hidden state, is zero.
        fc = load_file(folder / "model.safetensors")["fc.weight"][:, : embedding.shape[1]]
        drafter = table(embedding.float() @ fc.float().T, head)
        right = [chain_of_maps(following, drafter, prompt[-1], asked["tokens"]) for prompt in asked["prompts"]]
        lengths[folder.name] = tokens_per_verify(right, asked["steps"])
    tiny = LlamaForCausalLM.from_pretrained(models / "tiny-llama", dtype=torch.float32)
    answers, right = greedy(tiny, asked["prompts"][: asked["answers"]], asked["answer_tokens"])
    lengths["tiny-llama"] = tokens_per_verify(right, asked["steps"])
    print(json.dumps({"accept_length": lengths, "tiny_llama": answers}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
