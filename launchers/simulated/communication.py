"""What an all-reduce costs under a setting of NCCL: latency for small messages, bandwidth for large ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from launchers.sglang.nccl import ALGORITHMS, PROTOCOLS, selected
from launchers.simulated.profile import Communication

Value = TypeVar("Value")


class Communicator:
    """All-reduces of a configuration's tensor-parallel ranks.

    Read are NCCL_PROTO, NCCL_ALGO, NCCL_P2P_LEVEL, NCCL_P2P_DISABLE, NCCL_{MIN,MAX}_{CTAS,NCHANNELS} and
    the flag tp-size (left out: all GPUs). P2P that is off goes through host memory, as level LOC does.
    """

    def __init__(self, profile: Communication, gpus: int, flags: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self._ranks = int(flags.get("tp-size") or gpus)
        self._token_bytes = profile.token_bytes
        link = _of(profile.protocols, selected(env.get("NCCL_PROTO"), PROTOCOLS, set(PROTOCOLS)))
        # all that serves an all-reduce on one node without NVLS
        algorithm = _of(profile.algorithms, selected(env.get("NCCL_ALGO"), ALGORITHMS, {"ring", "tree"}))
        level = "LOC" if env.get("NCCL_P2P_DISABLE") == "1" else env.get("NCCL_P2P_LEVEL", "").upper()
        path = _of(profile.p2p_levels, level)
        channels = _channels(profile.channels, env)
        slower = 1.0 + profile.latency_per_channel * (channels - profile.channels)
        wider = channels / (channels + profile.half_bandwidth_channels)
        wider *= (profile.channels + profile.half_bandwidth_channels) / profile.channels
        self._latency_s = link.latency_s * algorithm.latency * path.latency * max(0.1, slower)
        self._bytes_per_s = link.bandwidth_gb_s * 1e9 * algorithm.bandwidth * path.bandwidth * wider

    def allreduce_s(self, tokens: int) -> float:
        """One all-reduce of `tokens` hidden states; 0 for a single rank."""
        ranks = self._ranks
        if ranks == 1:
            return 0.0
        volume = 2.0 * (ranks - 1) / ranks * tokens * self._token_bytes
        return self._latency_s + volume / self._bytes_per_s


def _of(table: Mapping[str, Value], name: str | None) -> Value:
    return table.get(name or "auto", table["auto"])


def _channels(own: int, env: Mapping[str, str]) -> int:
    """NCCL's own number of channels between the bounds set; a bound outside 1 to 64 is none."""
    channels = own
    for bound, names in (
        (max, ("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS")),
        (min, ("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS")),
    ):
        for name in names:
            text = env.get(name, "")
            if text.isdigit() and 1 <= int(text) <= 64:
                channels = bound(channels, int(text))
    return channels
