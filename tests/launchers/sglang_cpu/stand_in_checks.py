"""Checks of the kernel stand-in against slow and obvious references. Run with the server's Python, which has torch:

    stand_in_checks.py FOLDER_OF_SGL_KERNEL

Prints one JSON object: the error of each check by its name, null where it holds.
"""

from __future__ import annotations

import json
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

sys.path.insert(0, sys.argv[1])
import sgl_kernel
import sgl_kernel.speculative

CHECKS: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(function)
    return function


def same(got: object, wanted: object, what: str) -> None:
    assert got == wanted, f"{what}: {got} instead of {wanted}"


def numbers(values: object, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def raises(kind: type[Exception], words: str, call: Callable[[], object]) -> None:
    told = None
    try:
        call()
    except kind as error:
        told = str(error)
    assert told is not None, f"no {kind.__name__}"
    assert words in told, f"{told} does not say {words}"


@dataclass(eq=False)
class Node:
    """A drafted token of the reference tree, with its number among the drafter's candidates."""

    parent: Node | None
    token: int
    candidate: int = -1
    children: list[Node] = field(default_factory=list)

    def path(self) -> list[Node]:
        return [] if self.parent is None else [*self.parent.path(), self]


@dataclass
class Draft:
    """What an EAGLE drafter hands over for one request, and the tree that it means."""

    parent_list: list[int]
    selected: list[int]
    nodes: list[Node]


def draft(draw: random.Random, topk: int, steps: int, draft_tokens: int) -> Draft:
    """Grow topk children on each of the topk best leaves, step by step, then keep the best candidates.

    As SGLang 0.5.23 does (eagle_utils.py, spec_utils.py): a candidate is numbered as it is made, and the last
    step's leaves need no entry among the parents. Scores fall along a path, so a kept node's parent is kept.
    """
    root = Node(None, draw.randrange(50))
    scored: list[tuple[float, Node]] = []
    leaves: list[tuple[float, Node]] = [(1.0, root)]
    parents = [-1]
    for step in range(steps):
        made = []
        for score, leaf in leaves:
            for token in draw.sample(range(50), topk):
                made.append((score * draw.uniform(0.1, 0.9), Node(leaf, token, len(scored) + len(made))))
        scored += made
        leaves = sorted(made, key=lambda pair: -pair[0])[:topk]
        if step < steps - 1:
            parents += [leaf.candidate for _, leaf in leaves]
    kept = sorted(sorted(scored, key=lambda pair: -pair[0])[: draft_tokens - 1], key=lambda pair: pair[1].candidate)
    for _, node in kept:
        assert node.parent is not None
        node.parent.children.append(node)
    return Draft(parents, [node.candidate for _, node in kept], [root, *(node for _, node in kept)])


SHAPES = [(1, 1, 2), (1, 3, 4), (1, 6, 7), (2, 1, 3), (2, 3, 6), (2, 5, 16), (4, 3, 8), (4, 4, 32), (8, 2, 9)]


def batches() -> Iterator[tuple[int, int, int, list[Draft], list[int]]]:
    draw = random.Random(0)
    for topk, steps, draft_tokens in SHAPES:
        for batch in (1, 3):
            drafts = [draft(draw, topk, steps, draft_tokens) for _ in range(batch)]
            yield topk, steps, draft_tokens, drafts, [draw.randrange(1, 20) for _ in drafts]


@dataclass
class Built:
    mask: torch.Tensor
    positions: torch.Tensor
    index: torch.Tensor
    first_child: torch.Tensor
    sibling: torch.Tensor


def empty(batch: int, nodes: int, lengths: list[int], mode: int) -> Built:
    size = sum(nodes * (nodes + (length if mode == 0 else 0)) for length in lengths)
    links = [torch.full((batch, nodes), -1, dtype=torch.int64) for _ in range(3)]
    return Built(torch.ones(size, dtype=torch.bool), torch.zeros(batch * nodes, dtype=torch.int64), *links)


def build(topk: int, steps: int, nodes: int, drafts: list[Draft], lengths: list[int], mode: int) -> Built:
    built = empty(len(drafts), nodes, lengths, mode)
    sgl_kernel.build_tree_kernel_efficient_cpu(
        numbers([d.parent_list if steps > 1 else [] for d in drafts]),
        numbers([d.selected for d in drafts]),
        numbers(lengths),
        built.mask,
        built.positions,
        built.index,
        built.first_child,
        built.sibling,
        topk,
        steps,
        nodes,
        mode,
    )
    return built


def children(built: Built, request: int, node: int) -> list[int]:
    found, at = [], int(built.first_child[request, node])
    while at != -1:
        found.append(at)
        at = int(built.sibling[request, at])
    return found


@check
def a_tree_has_the_links_positions_and_mask_that_its_drafts_mean() -> None:
    for mode in (0, 1):
        for topk, steps, nodes, drafts, lengths in batches():
            built = build(topk, steps, nodes, drafts, lengths, mode)
            same(built.index.flatten().tolist(), list(range(len(drafts) * nodes)), "retrive_index")
            at = 0
            for request, (one, length) in enumerate(zip(drafts, lengths, strict=True)):
                number = {node: i for i, node in enumerate(one.nodes)}
                prefix = length if mode == 0 else 0
                for i, node in enumerate(one.nodes):
                    path = node.path()
                    row = built.mask[at : at + prefix + nodes].tolist()
                    at += prefix + nodes
                    seen = {0, *(number[above] for above in path)}
                    same(row, [True] * prefix + [j in seen for j in range(nodes)], f"mask of node {i}")
                    same(int(built.positions[request * nodes + i]), length + len(path), f"position of node {i}")
                    same(children(built, request, i), [number[child] for child in node.children], f"children of {i}")


@check
def a_node_whose_parent_was_not_kept_hangs_nowhere_and_sees_only_itself_and_the_root() -> None:
    # Candidate 2 is a child of candidate 0, which a tie of scores can leave out.
    orphan = Draft([-1, 0, 1], [1, 2], [])
    built = build(2, 2, 3, [orphan], [5], 1)
    same(built.mask.view(3, 3).tolist(), [[True, False, False], [True, True, False], [True, False, True]], "mask")
    same((children(built, 0, 0), children(built, 0, 1)), ([1], []), "children")


@check
def an_unknown_mask_mode_is_refused() -> None:
    one = draft(random.Random(0), 1, 1, 2)
    raises(ValueError, "mode 2", lambda: build(1, 1, 2, [one], [3], 2))


@check
def a_tree_read_back_from_its_mask_is_the_same() -> None:
    for topk, steps, nodes, drafts, lengths in batches():
        built, again = build(topk, steps, nodes, drafts, lengths, 1), empty(len(drafts), nodes, lengths, 1)
        sgl_kernel.speculative.reconstruct_indices_from_tree_mask(
            built.mask,
            numbers(lengths),
            again.positions,
            again.index,
            again.first_child,
            again.sibling,
            len(drafts),
            nodes,
        )
        for name in ("positions", "index", "first_child", "sibling"):
            same(getattr(again, name).tolist(), getattr(built, name).tolist(), name)


@check
def a_greedy_walk_accepts_the_longest_path_that_the_target_says() -> None:
    draw = random.Random(1)
    lengths_seen = set()
    for topk, steps, nodes, drafts, lengths in batches():
        built = build(topk, steps, nodes, drafts, lengths, 1)
        says: list[list[int]] = []
        for one in drafts:
            # The target often agrees with one of the children.
            rows = [
                draw.choice(node.children).token if node.children and draw.random() < 0.8 else 50 for node in one.nodes
            ]
            says.append(rows)
        accept_index = torch.full((len(drafts), steps + 1), -1, dtype=torch.int32)
        accepted, predicts = torch.zeros(len(drafts), dtype=torch.int32), torch.zeros(len(drafts) * nodes).int()
        sgl_kernel.verify_tree_greedy_cpu(
            predicts=predicts,
            accept_index=accept_index,
            accept_token_num=accepted,
            candidates=numbers([[node.token for node in one.nodes] for one in drafts]),
            retrive_index=built.index,
            retrive_next_token=built.first_child,
            retrive_next_sibling=built.sibling,
            target_predict=numbers(says),
        )
        for request, one in enumerate(drafts):
            walk, node = [0], one.nodes[0]
            while True:
                said = says[request][walk[-1]]
                following = [child for child in node.children if child.token == said]
                if not following:
                    break
                node = following[0]
                walk.append(one.nodes.index(node))
            places = [request * nodes + i for i in walk]
            same(accept_index[request].tolist(), places + [-1] * (steps + 1 - len(walk)), "accept_index")
            same(int(accepted[request]), len(walk) - 1, "accept_token_num")
            same([int(predicts[place]) for place in places], [says[request][i] for i in walk], "predicts")
            lengths_seen.add(len(walk))
    assert {1, 2, 3, 4} <= lengths_seen, f"only walks of {lengths_seen} were tried"


@check
def a_walk_ends_at_the_width_of_accept_index() -> None:
    # A chain of three drafted tokens that the target agrees with, and room for one of them.
    accept_index, accepted, predicts = torch.full((1, 2), -1), torch.zeros(1), torch.zeros(4)
    chain, none = numbers([[1, 2, 3, -1]]), torch.full((1, 4), -1)
    sgl_kernel.verify_tree_greedy_cpu(
        predicts, accept_index, accepted, numbers([[9, 5, 6, 7]]), numbers([[0, 1, 2, 3]]), chain, none,
        numbers([[5, 6, 7, 8]]),
    )  # fmt: skip
    same((accept_index.tolist(), accepted.tolist(), predicts.tolist()), ([[0, 1]], [1], [5, 6, 0, 0]), "walk")


@check
def slots_are_written_and_read_at_the_positions_of_each_request() -> None:
    table = torch.zeros(4, 10, dtype=torch.int32)
    rows, starts, ends = numbers([2, 0, 3]), numbers([1, 4, 5]), numbers([4, 4, 7])
    sgl_kernel.assign_req_to_token_pool_cpu(rows, table, starts, ends, numbers([11, 12, 13, 14, 15]), 10)
    wanted = torch.zeros(4, 10, dtype=torch.int32)
    wanted[2, 1:4], wanted[3, 5:7] = torch.tensor([11, 12, 13]), torch.tensor([14, 15])
    same(table.tolist(), wanted.tolist(), "table")
    read = torch.full((6,), -1)
    sgl_kernel.assign_extend_cache_locs_cpu(rows, table, starts, ends, read, 10)
    same(read.tolist(), [11, 12, 13, 14, 15, -1], "slots read")


@check
def draft_slots_follow_the_tokens_and_each_branch_has_its_own() -> None:
    table = torch.arange(60, dtype=torch.int32).view(3, 20)
    rows, lengths = numbers([2, 0]), numbers([3, 5])
    slots = torch.zeros(12, dtype=torch.int64)
    sgl_kernel.assign_draft_cache_locs_contiguous_cpu(rows, table, lengths, slots, 20, 2, 3)
    same(slots.tolist(), [*range(43, 49), *range(5, 11)], "slots")
    branches = sgl_kernel.build_draft_decode_metadata_cpu(table, rows, lengths, 2, 3, 20)
    same(branches.shape, (4, 20), "shape")
    same(branches[0, :6].tolist(), [40, 41, 42, 43, 44, 45], "first branch of the first request")
    same(branches[1, :6].tolist(), [40, 41, 42, 46, 47, 48], "second branch of the first request")
    same(branches[3, :8].tolist(), [0, 1, 2, 3, 4, 8, 9, 10], "second branch of the second request")


@check
def accepted_slots_come_without_gaps() -> None:
    out = torch.zeros(4, dtype=torch.int64)
    sgl_kernel.fill_accept_out_cache_loc_cpu(numbers([[0, -1], [3, 2]]), numbers([10, 11, 12, 13]), out)
    same(out.tolist(), [10, 13, 12, 0], "slots")


@check
def overlapping_slots_are_copied_as_if_at_once_in_every_layer() -> None:
    layers = [torch.randn(6, 3), torch.randn(6, 5).to(torch.bfloat16)]
    before = [layer.clone() for layer in layers]
    sgl_kernel.copy_all_layer_kv_cache_cpu(
        numbers([layer.data_ptr() for layer in layers]),
        numbers([layer.stride(0) * layer.element_size() for layer in layers]),
        numbers([1, 2, 5]),
        numbers([0, 1, 1]),
    )
    for layer, old in zip(layers, before, strict=True):
        assert torch.equal(layer, old[[0, 0, 1, 3, 4, 1]]), "wrong rows"


@check
def the_bonus_token_is_the_last_accepted_one() -> None:
    bonus = torch.zeros(2, dtype=torch.int32)
    sgl_kernel.fill_bonus_tokens_cpu(numbers([4, 5, 6, 7, 8, 9]), numbers([3, 1]), bonus, 3)
    same(bonus.tolist(), [6, 7], "bonus")


@check
def ids_rotate_within_each_request() -> None:
    ids = numbers([1, 2, 3, 4, 5, 6])
    starts, lengths = numbers([0, 3, 3]), numbers([3, 0, 3])
    sgl_kernel.rotate_input_ids_cpu(ids, starts, lengths, numbers([[7], [8], [9]]))
    same(ids.tolist(), [2, 3, 7, 5, 6, 9], "ids")
    sgl_kernel.rotate_input_ids_cpu(ids, numbers([0]), numbers([3]), numbers([0]), numbers([1]))
    same(ids.tolist(), [3, 0, 7, 5, 6, 9], "ids with a place")


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sees: list[int], scale: float, cap: float) -> list[float]:
    """One head and one query, spelt out in double precision."""
    logits = [scale * float(q.double() @ k[j].double()) for j in sees]
    if cap:
        logits = [cap * float(torch.tanh(torch.tensor(x / cap).double())) for x in logits]
    weights = torch.tensor(logits).double().softmax(0)
    out: list[float] = (weights @ v[sees].double()).tolist()
    return out


def close(got: torch.Tensor, wanted: list[float], what: str) -> None:
    assert torch.allclose(got.double(), torch.tensor(wanted).double(), atol=1e-5), what


REST = {"is_cross_attn": False, "sliding_window": 0, "encoder_lens": None, "sinks": None}


@check
def decoding_attends_to_every_token_of_its_request_and_stores_the_new_one() -> None:
    torch.manual_seed(0)
    for cap in (0.0, 2.0):
        keys, values = torch.randn(30, 2, 8), torch.randn(30, 2, 8)
        query, new_k, new_v = torch.randn(2, 4, 8), torch.randn(2, 2, 8), torch.randn(2, 2, 8)
        table = torch.randperm(30).view(2, 15).int()
        lengths, loc = numbers([5, 9]), numbers([int(table[1, 4]), int(table[0, 8])])
        out = torch.zeros(2, 4, 8)
        torch.ops.sgl_kernel.decode_attention_cpu(
            query, keys, values, 1.0, 1.0, out, new_k, new_v, loc, torch.zeros(1), table, numbers([1, 0]), lengths,
            0.3, cap, **REST,
        )  # fmt: skip
        assert torch.equal(keys[loc], new_k), "new keys are not stored"
        assert torch.equal(values[loc], new_v), "new values are not stored"
        for request, row in enumerate((1, 0)):
            sees = table[row, : int(lengths[request])].tolist()
            for head in range(4):
                k, v = keys[:, head // 2], values[:, head // 2]
                close(out[request, head], attend(query[request, head], k, v, sees, 0.3, cap), f"{request} {head}")


@check
def extending_attends_to_what_comes_before_or_to_what_the_tree_shows() -> None:
    torch.manual_seed(1)
    keys, values = torch.randn(40, 2, 8), torch.randn(40, 2, 8)
    table = torch.randperm(40).view(2, 20).int()
    lengths, new = [7, 12], [3, 4]
    query = torch.randn(7, 4, 8)
    masks = [torch.rand(n, n) < 0.5 for n in new]
    for mask in masks:
        mask.fill_diagonal_(True)
    for kind in ("causal", "tree", "all"):
        out = torch.zeros(7, 4, 8)
        torch.ops.sgl_kernel.extend_attention_cpu(
            query, None, None, out, keys, values, 1.0, 1.0, table, numbers([1, 0]), numbers(lengths), numbers(new),
            numbers([0, 3]), 4, 0.3, 0.0, **REST,
            tree_mask=torch.cat([mask.flatten() for mask in masks]) if kind == "tree" else None,
            is_causal=kind != "all",
        )  # fmt: skip
        at = 0
        for request, row in enumerate((1, 0)):
            length, count = lengths[request], new[request]
            for i in range(count):
                among = {
                    "causal": [j for j in range(count) if j <= i],
                    "tree": [j for j in range(count) if masks[request][i, j]],
                    "all": list(range(count)),
                }[kind]
                positions = [*range(length - count), *(length - count + j for j in among)]
                sees = table[row, positions].tolist()
                for head in range(4):
                    k, v = keys[:, head // 2], values[:, head // 2]
                    close(out[at, head], attend(query[at, head], k, v, sees, 0.3, 0.0), f"{kind} {request} {i} {head}")
                at += 1


@check
def what_attention_does_not_cover_is_refused() -> None:
    cache = torch.zeros(4, 1, 8)
    one = numbers([1])

    def decode(**other: object) -> None:
        torch.ops.sgl_kernel.decode_attention_cpu(
            torch.zeros(1, 1, 8), cache, cache, 1.0, 1.0, torch.zeros(1, 1, 8), None, None, one, one,
            torch.zeros(1, 4).int(), numbers([0]), one, 1.0, 0.0, **{**REST, **other},
        )  # fmt: skip

    decode()
    raises(NotImplementedError, "sliding window", lambda: decode(sliding_window=3))
    raises(NotImplementedError, "sinks", lambda: decode(sinks=torch.zeros(1)))
    raises(NotImplementedError, "cross attention", lambda: decode(is_cross_attn=True))


def main() -> None:
    # More threads wait for each other on a busy machine.
    torch.set_num_threads(1)
    errors = {}
    for one in CHECKS:
        try:
            one()
            errors[one.__name__] = None
        except Exception:
            errors[one.__name__] = traceback.format_exc()
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
