"""The KV pool: slots held by running requests, and the prefix cache that fills the rest."""

from __future__ import annotations

from launchers.simulated.radix import RadixCache
from launchers.simulated.request import Request


class KVPool:
    """`capacity` slots of one token each; every slot is free, held by a request, or in the cache."""

    def __init__(self, capacity: int, page_size: int = 1, radix_cache: bool = True) -> None:
        self.capacity = capacity
        self.cache = RadixCache(radix_cache, page_size)
        #: Slots held by requests outside the cache.
        self.owned = 0

    @property
    def free(self) -> int:
        """Slots holding nothing."""
        return self.capacity - self.owned - self.cache.evictable - self.cache.protected

    @property
    def available(self) -> int:
        """Slots a request can have: free ones and evictable ones."""
        return self.capacity - self.owned - self.cache.protected

    @property
    def used(self) -> int:
        """Slots in use by requests, shared prefixes counted once."""
        return self.owned + self.cache.protected

    @property
    def usage(self) -> float:
        """Share of the pool in use (what is merely cached does not count)."""
        return self.used / self.capacity

    def make_room(self, tokens: int) -> bool:
        """Evict until `tokens` slots are free; False if they cannot be had (nothing is evicted then)."""
        free = self.free
        if free >= tokens:
            return True
        if free + self.cache.evictable < tokens:
            return False
        self.cache.evict(tokens - free)
        return True

    def cached_prefix(self, request: Request) -> int:
        """Tokens of the request found in the cache, without taking them."""
        return self.cache.match(_sequence(request)[:-1])[0]

    def take_prefix(self, request: Request) -> int:
        """Lock the cached prefix of a request; its length. At least one token is left to compute."""
        length, node = self.cache.match(_sequence(request)[:-1])
        self.cache.lock(node)
        request.node, request.prefix, request.prefilled = node, length, length
        return length

    def take(self, request: Request, tokens: int) -> None:
        """Slots for `tokens` further prompt tokens; `make_room` must have said yes."""
        request.owned += tokens
        request.prefilled += tokens
        self.owned += tokens

    def grew(self, tokens: int) -> None:
        """Running requests took that many slots (already added to their `owned`)."""
        self.owned += tokens

    def keep_prompt(self, request: Request) -> None:
        """A prefill is whole: its tokens go to the cache and stay locked; duplicates are freed."""
        if not self.cache.enabled:
            return
        tokens = _sequence(request)
        _, node = self.cache.insert(tokens)
        self.cache.lock(node)
        if request.node is not None:
            self.cache.unlock(request.node)
        self.owned -= request.owned
        request.owned, request.node, request.prefix = 0, node, len(tokens)

    def release(self, request: Request, keep: bool) -> None:
        """Give back what a request holds; `keep` leaves its tokens in the cache."""
        if keep and self.cache.enabled and request.prefilled >= len(request.input_ids):
            # the last token's KV was never computed
            self.cache.insert(_sequence(request)[:-1])
        if request.node is not None:
            self.cache.unlock(request.node)
        self.owned -= request.owned
        request.owned, request.node, request.prefix = 0, None, 0

    def flush(self) -> None:
        """Empty the cache; no request may be inside."""
        self.cache.clear()


def _sequence(request: Request) -> tuple[int, ...]:
    return (*request.input_ids, *request.output_ids)
