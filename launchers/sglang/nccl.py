"""NCCL's selection of algorithms and protocols by environment, as a pure grammar (NCCL 2.30)."""

from __future__ import annotations

from collections.abc import Mapping, Set

COLLECTIVES = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
#: By lower-case name, as its documentation spells them.
ALGORITHMS = {
    name.lower(): name for name in ("Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
}
PROTOCOLS = {name.lower(): name for name in ("LL", "LL128", "Simple")}
#: From the nearest pairs of GPUs only to all pairs, across sockets too.
P2P_LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")

#: Which algorithms exist for a collective; what is missing here has only the ring.
_SERVED_BY = {
    "allreduce": frozenset({"tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree"}),
    "allgather": frozenset({"ring", "pat", "nvls", "collnetdirect"}),
    "reducescatter": frozenset({"ring", "pat", "nvls", "collnetdirect"}),
}
_ONLY_SIMPLE = frozenset({"collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"})

Selection = Mapping[str, frozenset[str]]


def parse_selection(text: str, known: Mapping[str, str]) -> Selection:
    """What NCCL_ALGO or NCCL_PROTO allows: for each collective the allowed names, lower-case.

    The form is `ring,tree;allreduce:tree;broadcast:^ring`: only the first entry may lack a collective and
    then holds for all of them; `^` inverts a list. What is not mentioned stays free.
    Raises ValueError with NCCL's own words on anything else.
    """
    everything = frozenset(known)
    allowed = dict.fromkeys(COLLECTIVES, everything)
    for position, entry in enumerate(text.lower().replace(" ", "").split(";")):
        collective, colon, names = entry.rpartition(":")
        if not colon and position:
            raise ValueError("All entries except the first must have a prefix")
        if colon and collective not in COLLECTIVES:
            raise ValueError(f"Unrecognized element token {collective!r}")
        inverted = names.startswith("^")
        listed = frozenset(names.removeprefix("^").split(","))
        for name in sorted(listed - everything):
            raise ValueError(f"Unrecognized element token {name!r}")
        chosen = everything - listed if inverted else listed
        allowed.update(dict.fromkeys([collective] if colon else COLLECTIVES, chosen))
    return allowed


def usable(collective: str, algorithms: Selection, protocols: Selection, nvls: bool) -> frozenset[str]:
    """Algorithms that can serve a collective on one node; empty means it fails when first called.

    Collnet needs a switch between nodes and NVLSTree several nodes, so neither counts here.
    """
    names = algorithms[collective] & _SERVED_BY.get(collective, frozenset({"ring"}))
    names -= {"collnetdirect", "collnetchain", "nvlstree"}
    if not nvls:
        names -= {"nvls"}
    if "simple" not in protocols[collective]:
        names -= _ONLY_SIMPLE
    return names if protocols[collective] else frozenset()


def selected(text: str | None, known: Mapping[str, str], among: Set[str]) -> str | None:
    """The one name of `among` (lower-case) that a variable leaves for all-reduces, in NCCL's spelling.

    None where it leaves a choice, is not set or cannot be read.
    """
    if not text:
        return None
    try:
        names = parse_selection(text, known)["allreduce"] & among
    except ValueError:
        return None
    return known[next(iter(names))] if len(names) == 1 else None


def canonical_selection(text: str, known: Mapping[str, str]) -> str:
    """The same selection in one spelling: NCCL's names, sorted, no spaces. Unreadable text stays as it is."""
    try:
        parse_selection(text, known)
    except ValueError:
        return text
    entries = []
    for entry in text.lower().replace(" ", "").split(";"):
        collective, colon, names = entry.rpartition(":")
        listed = ",".join(sorted(known[name] for name in names.removeprefix("^").split(",")))
        entries.append(f"{collective}{colon}{'^' if names.startswith('^') else ''}{listed}")
    return ";".join(entries)
