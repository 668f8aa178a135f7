"""The prefix cache against a list of what was put in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from launchers.simulated.radix import RadixCache

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def _longest(kept: list[list[int]], tokens: list[int]) -> int:
    best = 0
    for other in kept:
        shared = 0
        while shared < min(len(other), len(tokens)) and other[shared] == tokens[shared]:
            shared += 1
        best = max(best, shared)
    return best


def _prefixes(kept: list[list[int]]) -> int:
    return len({tuple(tokens[:n]) for tokens in kept for n in range(1, len(tokens) + 1)})


@settings(max_examples=200)
@given(st.lists(TOKENS, max_size=12), TOKENS)
def test_match_is_the_longest_common_prefix_and_size_is_the_number_of_prefixes(
    kept: list[list[int]], asked: list[int]
) -> None:
    cache = RadixCache()
    for i, tokens in enumerate(kept):
        assert cache.insert(tokens)[0] == _longest(kept[:i], tokens)
    assert cache.match(asked)[0] == _longest(kept, asked)
    assert cache.evictable == _prefixes(kept)


@settings(max_examples=100)
@given(st.lists(TOKENS, min_size=1, max_size=10), st.data())
def test_locked_prefixes_survive_eviction_and_the_rest_goes(kept: list[list[int]], data: st.DataObject) -> None:
    cache = RadixCache()
    for tokens in kept:
        cache.insert(tokens)
    held = data.draw(st.sampled_from(kept))
    _, node = cache.match(held)
    cache.lock(node)
    assert cache.protected == len(held)
    assert cache.evict(10**6) == _prefixes(kept) - len(held)
    assert cache.match(held)[0] == len(held)
    cache.unlock(node)
    assert (cache.protected, cache.evictable) == (0, len(held))
    assert cache.evict(10**6) == len(held)
    assert cache.match(held)[0] == 0


def test_a_lock_survives_the_split_of_its_edge() -> None:
    cache = RadixCache()
    _, node = cache.insert([1, 2, 3, 4])
    cache.lock(node)
    cache.insert([1, 2, 9])
    assert cache.protected == 4
    assert cache.evict(100) == 1
    cache.unlock(node)
    assert cache.protected == 0
    assert cache.evictable == 4


def test_the_least_recently_used_leaf_goes_first() -> None:
    cache = RadixCache()
    cache.insert([1, 1])
    cache.insert([2, 2])
    cache.match([1, 1])
    assert cache.evict(1) == 2
    assert cache.match([1, 1])[0] == 2
    assert cache.match([2, 2])[0] == 0


def test_pages_are_matched_whole() -> None:
    cache = RadixCache(page_size=4)
    cache.insert(range(10))
    assert cache.match(range(7))[0] == 4
    assert cache.match(range(3))[0] == 0
