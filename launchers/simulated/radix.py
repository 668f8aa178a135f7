"""Prefix cache: a radix tree over token ids whose unlocked leaves are evicted, least recently used first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


class Node:
    """An edge of the tree: `key` is the run of token ids from the parent to here."""

    __slots__ = ("children", "key", "last_used", "locks", "parent")

    def __init__(self, key: tuple[int, ...], parent: Node | None) -> None:
        self.key = key
        self.parent = parent
        self.children: dict[int, Node] = {}
        #: Running requests that need this node; while any does, it is not evicted.
        self.locks = 0
        self.last_used = 0


class RadixCache:
    """Tokens kept of finished and running requests. Sizes are in tokens, one KV slot each."""

    def __init__(self, enabled: bool = True, page_size: int = 1) -> None:
        self.enabled = enabled
        self._page = page_size
        self._use = 0
        self.root = Node((), None)
        #: Tokens of unlocked nodes: what eviction can free.
        self.evictable = 0
        #: Tokens of locked nodes.
        self.protected = 0

    def match(self, tokens: Sequence[int]) -> tuple[int, Node]:
        """Length of the longest cached prefix (whole pages) and the node where it ends, splitting an edge."""
        if not self.enabled:
            return 0, self.root
        ids = tuple(tokens)
        node, at = self._walk(ids[: len(ids) // self._page * self._page])
        whole = at // self._page * self._page
        if whole != at:
            node, at = self._walk(ids[:whole])
        return at, node

    def _walk(self, ids: tuple[int, ...]) -> tuple[Node, int]:
        self._use += 1
        node, at = self.root, 0
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None:
                break
            shared = _common(child.key, ids, at)
            if shared < len(child.key):
                child = self._split(child, shared)
            child.last_used = self._use
            node, at = child, at + shared
        return node, at

    def insert(self, tokens: Sequence[int]) -> tuple[int, Node]:
        """Keep `tokens`; the number that was there already and the node where they end."""
        if not self.enabled:
            return 0, self.root
        ids = tuple(tokens)
        node, at = self._walk(ids)
        if at == len(ids):
            return at, node
        leaf = Node(ids[at:], node)
        leaf.last_used = self._use
        node.children[ids[at]] = leaf
        self.evictable += len(leaf.key)
        return at, leaf

    def lock(self, node: Node) -> None:
        """Hold the path to `node`."""
        here: Node | None = node
        while here is not None and here is not self.root:
            if here.locks == 0:
                self.evictable -= len(here.key)
                self.protected += len(here.key)
            here.locks += 1
            here = here.parent

    def unlock(self, node: Node) -> None:
        """Let go of the path to `node`, held before by `lock`."""
        here: Node | None = node
        while here is not None and here is not self.root:
            here.locks -= 1
            if here.locks == 0:
                self.protected -= len(here.key)
                self.evictable += len(here.key)
            here = here.parent

    def evict(self, wanted: int) -> int:
        """Free at least `wanted` tokens if that many are unlocked; the number freed."""
        if wanted <= 0 or self.evictable == 0:
            return 0
        heap = [(n.last_used, id(n), n) for n in self._leaves() if n.locks == 0]
        heapq.heapify(heap)
        freed = 0
        while heap and freed < wanted:
            leaf = heapq.heappop(heap)[2]
            parent = leaf.parent
            assert parent is not None
            del parent.children[leaf.key[0]]
            freed += len(leaf.key)
            self.evictable -= len(leaf.key)
            if parent is not self.root and not parent.children and parent.locks == 0:
                heapq.heappush(heap, (parent.last_used, id(parent), parent))
        return freed

    def clear(self) -> int:
        """Forget everything (no request may be running); the number of tokens freed."""
        freed = self.evictable + self.protected
        self.root = Node((), None)
        self.evictable = self.protected = 0
        return freed

    def _leaves(self) -> list[Node]:
        leaves, stack = [], list(self.root.children.values())
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(node.children.values())
            else:
                leaves.append(node)
        return leaves

    def _split(self, child: Node, at: int) -> Node:
        parent = child.parent
        assert parent is not None
        upper = Node(child.key[:at], parent)
        upper.locks, upper.last_used = child.locks, child.last_used
        upper.children[child.key[at]] = child
        parent.children[child.key[0]] = upper
        child.key, child.parent = child.key[at:], upper
        return upper


def _common(key: tuple[int, ...], ids: tuple[int, ...], at: int) -> int:
    """How many tokens of `key` agree with `ids` from `at` on."""
    size = min(len(key), len(ids) - at)
    if key[:size] == ids[at : at + size]:
        return size
    for i in range(size):
        if key[i] != ids[at + i]:
            return i
    return size
