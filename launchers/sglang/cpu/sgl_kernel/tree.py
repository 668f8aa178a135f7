"""The tree of drafted tokens: built from the drafter's choices, and walked by what the target says.

A request has `draft_token_num` nodes; node 0 is the token that is verified already. Children are a linked list:
`retrive_next_token` is a node's first child, `retrive_next_sibling` the next child of its parent, -1 is none, and
`retrive_index` is a node's place in the batch. SGLang spells them so.
"""

from __future__ import annotations

import torch

_FULL_MASK, _DRAFT_ONLY = 0, 1


def _parents(parent_list: list[int], selected: list[int], topk: int) -> list[int | None]:
    """The parent node of each node; None for the root and for a node whose parent was not selected.

    The drafter numbers its candidates; `selected` gives the candidate behind nodes 1, 2, .... Candidates come in
    groups of topk that share a parent: group 0 hangs on the root, group g on the candidate `parent_list[g]`.
    """
    node_of = {candidate: node for node, candidate in enumerate(selected, start=1)}
    groups = [candidate // topk for candidate in selected]
    return [None, *(0 if group == 0 else node_of.get(parent_list[group]) for group in groups)]


def _path(node: int, parents: list[int | None], depth: int) -> list[int]:
    """The node and those above it, the root left out; at most `depth`."""
    path: list[int] = []
    at: int | None = node
    while at and len(path) < depth:
        path.append(at)
        at = parents[at]
    return path


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Links, positions and attention mask of each request's tree.

    The link tensors come filled with -1. `tree_mask` is flat: for each request, one row a node over the draft tokens
    (mode 1) or over the request's tokens and then these (mode 0, the former already True); a node sees its path and
    the root. Raises ValueError for another mode.
    """
    if tree_mask_mode not in (_FULL_MASK, _DRAFT_ONLY):
        raise ValueError(f"the CPU stand-in of sgl_kernel has no tree mask mode {tree_mask_mode}; it knows 0 and 1")
    nodes, mask_at = draft_token_num, 0
    for request, length in enumerate(verified_seq_len.tolist()):
        parents = _parents(parent_list[request].tolist(), selected_index[request].tolist(), topk)
        prefix = length if tree_mask_mode == _FULL_MASK else 0
        rows = tree_mask[mask_at : mask_at + nodes * (prefix + nodes)].view(nodes, prefix + nodes)[:, prefix:]
        mask_at += nodes * (prefix + nodes)
        rows[:] = False
        rows[:, 0] = True
        place = request * nodes
        retrive_index[request] = torch.arange(place, place + nodes)
        first_child, sibling = [-1] * nodes, [-1] * nodes
        for node in reversed(range(nodes)):
            path = _path(node, parents, depth)
            rows[node, path] = True
            positions[place + node] = length + len(path)
            parent = parents[node]
            if parent is not None:
                first_child[parent], sibling[node] = node, first_child[parent]
        retrive_next_token[request] = torch.tensor(first_child)
        retrive_next_sibling[request] = torch.tensor(sibling)


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Walk each tree from the root along the children that are the target's own choice.

    `target_predict[place]` is the target's token after the node at that place. `accept_index` [batch, steps + 1] gets
    the places of the walk, root first; `accept_token_num` how many were accepted beyond the root; `predicts` the
    target's token at each place of the walk, the last of which is the bonus token.
    """
    choices = target_predict.flatten().tolist()
    width = accept_index.shape[1]
    links = (candidates, retrive_index, retrive_next_token, retrive_next_sibling)
    trees = zip(*(tensor.tolist() for tensor in links), strict=True)
    for request, (tokens, places, first_child, sibling) in enumerate(trees):
        walk, node = [places[0]], 0
        while len(walk) < width:
            node = first_child[node]
            while node != -1 and tokens[node] != choices[walk[-1]]:
                node = sibling[node]
            if node == -1:
                break
            walk.append(places[node])
        accept_index[request, : len(walk)] = torch.tensor(walk, dtype=accept_index.dtype)
        accept_token_num[request] = len(walk) - 1
        predicts[walk] = torch.tensor([choices[place] for place in walk], dtype=predicts.dtype)
