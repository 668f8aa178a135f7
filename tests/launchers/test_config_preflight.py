"""One configuration before its start: what the resolver says decides, and where the rules differ is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from launchers.base import LaunchSpec
from launchers.errors import BadArgument, InvalidCombination
from launchers.sglang.preflight import Preflight, disagreements
from launchers.sglang.resolver import Resolved, Resolver, ResolverFailed
from launchers.sglang.rules import judge

CHAIN: dict[str, Any] = {
    "model-path": "m",
    "speculative-algorithm": "EAGLE",
    "speculative-draft-model-path": "d",
    "speculative-num-steps": 5,
    "speculative-eagle-topk": 1,
    "speculative-num-draft-tokens": 4,
}
#: What 0.5.23 makes of it.
RESOLVED: dict[str, Any] = {
    "model_path": "m",
    "speculative_algorithm": "EAGLE",
    "speculative_draft_model_path": "d",
    "speculative_num_steps": 5,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 6,
    "max_running_requests": 48,
    "enable_mixed_chunk": False,
    "schedule_policy": "fcfs",
}
NO_TOPK = {**CHAIN, "speculative-eagle-topk": None}


def refusal(line: str, exit_code: int = 1) -> Resolved:
    trace = "Traceback (most recent call last):\n    arguments.resolve_once()\n" if exit_code == 1 else ""
    return Resolved(exit_code=exit_code, log=f"{trace}{line}\n")


def differing(flags: Mapping[str, Any], resolved: Resolved) -> list[str]:
    return disagreements(judge(flags, {}), resolved, flags)


# ---- disagreements -----------------------------------------------------------------------------------------


def test_what_both_make_of_it_is_no_finding() -> None:
    assert differing(CHAIN, Resolved(RESOLVED)) == []
    assert differing(NO_TOPK, refusal("TypeError: '>' not supported")) == []


def test_a_value_that_the_rules_do_not_foresee_is_one() -> None:
    (finding,) = differing(CHAIN, Resolved({**RESOLVED, "speculative_num_draft_tokens": 7}))
    assert "SGLang makes speculative-num-draft-tokens 7 where the rules say 6" in finding
    # What was not asked and no rule touches is SGLang's default, not a finding.
    assert differing(CHAIN, Resolved({**RESOLVED, "schedule_policy": "lpm"})) == []
    (finding,) = differing({**CHAIN, "schedule-policy": "fcfs"}, Resolved({**RESOLVED, "schedule_policy": "lpm"}))
    assert "schedule-policy 'lpm'" in finding


def test_a_flag_that_the_rules_remove_must_be_gone() -> None:
    flags = {**CHAIN, "speculative-algorithm": "STANDALONE", "enable-mixed-chunk": True}
    told = {**RESOLVED, "speculative_algorithm": "STANDALONE"}
    assert differing(flags, Resolved(told)) == []
    (finding,) = differing(flags, Resolved({**told, "enable_mixed_chunk": True}))
    assert "enable-mixed-chunk" in finding


def test_one_refuses_what_the_other_accepts() -> None:
    (finding,) = differing(NO_TOPK, Resolved(RESOLVED))
    assert finding.startswith("the rules refuse what SGLang accepts")
    (finding,) = differing(CHAIN, refusal("ValueError: not on a Tuesday"))
    assert finding.startswith("SGLang refuses what the rules accept")
    assert "not on a Tuesday" in finding


def test_deaths_after_parsing_and_refusals_of_ours_are_out_of_its_reach() -> None:
    large = {**CHAIN, "speculative-eagle-topk": 2, "speculative-num-steps": 1, "speculative-num-draft-tokens": 30}
    told = {**RESOLVED, "speculative_num_steps": 1, "speculative_eagle_topk": 2, "speculative_num_draft_tokens": 30}
    assert differing(large, Resolved(told)) == []
    drafterless = {**CHAIN, "speculative-algorithm": "EAGLE3", "speculative-draft-model-path": None}
    assert differing(drafterless, Resolved({**RESOLVED, "speculative_algorithm": "EAGLE3"})) == []


def test_what_attention_groups_make_of_a_setting_is_foreseen() -> None:
    flags = {"model-path": "m", "tp-size": 4, "attn-dp-size": 2, "chunked-prefill-size": 512}
    flags["schedule-conservativeness"] = 0.5
    told = {"tp_size": 4, "attn_dp_size": 2, "chunked_prefill_size": 256, "schedule_conservativeness": 0.15}
    assert differing(flags, Resolved(told)) == []
    assert len(differing(flags, Resolved({**told, "chunked_prefill_size": 512}))) == 1


@pytest.mark.parametrize("told", [8, "8", 8.0])
def test_spelling_is_no_difference(told: Any) -> None:
    assert differing({"model-path": "m", "max-running-requests": "8"}, Resolved({"max_running_requests": told})) == []


# ---- the check ---------------------------------------------------------------------------------------------


class Scripted(Resolver):
    """Gives prepared answers, one a question; an exception among them is raised."""

    def __init__(self, answers: Iterable[Resolved | ResolverFailed]) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[list[str], dict[str, str]]] = []

    def resolve(self, argv: Sequence[str], env: Mapping[str, str]) -> Resolved:
        self.asked.append((list(argv), dict(env)))
        answer = self._answers.pop(0)
        if isinstance(answer, ResolverFailed):
            raise answer
        return answer


def spec(flags: Mapping[str, Any], **env: str) -> LaunchSpec:
    return LaunchSpec("m", {name: value for name, value in flags.items() if name != "model-path"}, env)


def test_the_server_is_asked_with_the_words_and_variables_of_the_trial() -> None:
    resolver = Scripted([Resolved(RESOLVED)])
    Preflight(resolver, {}).check(spec(CHAIN, NCCL_PROTO="LL"))
    ((argv, env),) = resolver.asked
    assert argv[:4] == ["--model-path", "m", "--speculative-algorithm", "EAGLE"]
    assert env == {"NCCL_PROTO": "LL"}


def test_a_refusal_is_raised_as_the_start_would_be_classed() -> None:
    usage = refusal("usage: sglang serve\nsglang serve: error: unrecognized arguments: --x 1", 2)
    preflight = Preflight(Scripted([refusal("TypeError: '>' not supported"), usage]), {})
    with pytest.raises(InvalidCombination, match="'>' not supported") as raised:
        preflight.check(spec(NO_TOPK))
    assert raised.value.exit_code == 1
    with pytest.raises(BadArgument, match="unrecognized arguments: --x"):
        preflight.check(spec({**CHAIN, "x": 1}))
    assert preflight.findings == []


def test_what_is_no_verdict_on_the_settings_is_left_to_the_start() -> None:
    answer = refusal("OSError: /models/m is not a local folder and is not a valid model identifier")
    preflight = Preflight(Scripted([answer]), {})
    preflight.check(spec(CHAIN))
    assert preflight.findings == []


def test_a_finding_is_kept_once_and_does_not_stop_the_trial(caplog: pytest.LogCaptureFixture) -> None:
    odd = Resolved({**RESOLVED, "max_running_requests": 4})
    preflight = Preflight(Scripted([odd, odd]), {})
    for _ in range(2):
        preflight.check(spec(CHAIN))
    (finding,) = preflight.findings
    assert "max-running-requests 4 where the rules say 48" in finding
    assert caplog.text.count(finding) == 1


def test_a_resolver_that_fails_twice_is_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    silent = ResolverFailed("silent for 60 s")
    resolver = Scripted([silent, Resolved(RESOLVED), silent, silent])
    preflight = Preflight(resolver, {})
    for _ in range(6):
        preflight.check(spec(CHAIN))
    # An answer in between begins the count anew.
    assert len(resolver.asked) == 4
    assert "The start itself will tell" in caplog.text


def test_the_architecture_is_read_where_the_model_is_here(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    flags = {"speculative-algorithm": "EAGLE"}
    told = {
        "speculative_algorithm": "EAGLE",
        "speculative_num_steps": 5,
        "speculative_eagle_topk": 4,
        "speculative_num_draft_tokens": 8,
    }
    preflight = Preflight(Scripted([Resolved(told)] * 2), {})
    preflight.check(LaunchSpec(str(tmp_path), flags))
    assert preflight.findings == []
    # Elsewhere a name decides, and this one tells nothing.
    preflight.check(LaunchSpec("org/m", flags))
    assert len(preflight.findings) == 3
