"""The tree of drafted tokens, read back from its attention mask: SGLang imports this for NGRAM."""

from __future__ import annotations

import torch


def reconstruct_indices_from_tree_mask(
    tree_mask: torch.Tensor,
    verified_seq_len: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Positions and links (see `sgl_kernel.tree`) of trees whose node i sees its ancestors j < i.

    `tree_mask` is [batch, node, node], flat. A parent is the nearest ancestor. A node without an ancestor has no
    sibling.
    """
    nodes = draft_token_num
    sees = tree_mask.reshape(batch_size, nodes, nodes).bool().tril(-1).tolist()
    for request, length in enumerate(verified_seq_len[:batch_size].tolist()):
        place = request * nodes
        ancestors = [[j for j, seen in enumerate(row) if seen] for row in sees[request]]
        first_child, sibling = [-1] * nodes, [-1] * nodes
        for node in reversed(range(nodes)):
            positions[place + node] = length + len(ancestors[node])
            if ancestors[node]:
                parent = ancestors[node][-1]
                first_child[parent], sibling[node] = node, first_child[parent]
        retrive_index[request] = torch.arange(place, place + nodes)
        retrive_next_token[request] = torch.tensor(first_child)
        retrive_next_sibling[request] = torch.tensor(sibling)
