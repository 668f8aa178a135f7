"""What the nodes say of themselves, put together before the first trial."""

from __future__ import annotations

import pytest

from launchers.preflight import NodeReport
from orchestrator.inspection import NodesUnfit, common_facts


def test_every_problem_of_every_node_is_told_at_once() -> None:
    reports = {"a": NodeReport(problems=("no disk", "no model")), "b": NodeReport(), "c": NodeReport(problems=("x",))}
    with pytest.raises(NodesUnfit, match="nothing was started") as caught:
        common_facts(reports)
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == ["a: no disk", "a: no model", "c: x"]


def test_nvlink_counts_where_every_node_has_it() -> None:
    def joined(*nvlink: bool | None) -> bool:
        return common_facts({str(i): NodeReport(nvlink=known) for i, known in enumerate(nvlink)}).nvlink

    assert joined(True, True)
    assert not joined(True, False)
    assert not joined(True, None)
    assert not joined()


def test_a_warning_names_its_node_where_there_are_several() -> None:
    one, other = NodeReport(warnings=("small /dev/shm",)), NodeReport(warnings=("old driver",), architecture="Llama")
    assert common_facts({"a": one}).warnings == ("small /dev/shm",)
    both = common_facts({"a": one, "b": other})
    assert both.warnings == ("a: small /dev/shm", "b: old driver")
    assert both.architecture == "Llama"
