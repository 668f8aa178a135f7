"""The search space file: values mean what they look like, and errors say where and what to write."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from orchestrator.config import SweepConfig
from orchestrator.yaml_source import ConfigError, load_sweep, parse_sweep

HEAD = "study: s\nmodel: m\nscore: {metric: output_tokens_per_s, concurrency: 8}\n"
SPACE = "space: {flags: {schedule-policy: {choices: [fcfs, lpm]}}}\n"
PLAIN = HEAD + SPACE


def parse(text: str) -> SweepConfig:
    return parse_sweep(text, "f.yaml")[0]


def errors_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_sweep(text, "f.yaml")
    return str(caught.value).splitlines()


def error_of(text: str) -> str:
    lines = errors_of(text)
    assert len(lines) == 1, lines
    return lines[0]


def choice(text: str) -> object:
    """What one unquoted choice of a flag is read as."""
    choices = parse(f"{HEAD}space:\n  flags:\n    x:\n      choices: [{text}, other]\n").space.flags["x"].choices
    assert choices is not None
    return choices[0]


# ---- plain values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1e5", 1e5),
        ("1E+2", 100.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("-3", -3),
        ("0", 0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("LL", "LL"),
        ('"no"', "no"),
        ("'0x10'", "0x10"),
        ("'1:30'", "1:30"),
        ("allreduce:ring", "allreduce:ring"),
        ("^LL128", "^LL128"),
        ("v1.2.3", "v1.2.3"),
        ("1.2.3", "1.2.3"),
        ("nope", "nope"),
        ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_a_value_is_what_it_looks_like(text: str, value: object) -> None:
    read = choice(text)
    assert read == value
    assert type(read) is type(value)


TRAPS = [
    "no", "No", "NO", "yes", "on", "Off", "y", "N", "1:30", "190:20:30", "010", "-010", "0o10", "1_000", "0x10", "0b11",
    "2026-01-01", "2026-01-01 10:00:00", "1_0.5", ".inf", "-.INF", ".nan", "08", "1e999", "9" * 5000, "=",
    "!!str 5", "!!int '5'", "! 5", "!!python/name:os.system ''", "!!binary aGk=", "!!float 1",
]  # fmt: skip


@pytest.mark.parametrize("text", TRAPS)
@pytest.mark.parametrize("place", ["choice", "env", "key", "nested"])
def test_what_yaml_versions_read_differently_is_refused_at_its_line(text: str, place: str) -> None:
    body, line = {
        "choice": (f"space:\n  flags:\n    x:\n      choices: [a, {text}]\n", 7),
        "env": (f"{SPACE}server:\n  env:\n\n    A: {text}\n", 8),
        "key": (f"{SPACE}server:\n  env:\n\n    {text}: a\n", 8),
        "nested": (f"{SPACE}server:\n  flags:\n    x:\n      b: [1, {text}]\n", 8),
    }[place]
    assert error_of(HEAD + body).startswith(f"f.yaml:{line}: ")


def test_the_way_to_write_a_trap_is_said() -> None:
    assert "'no'" in error_of(f"{PLAIN}server: {{env: {{NCCL_NVLS_ENABLE: no}}}}\n")
    assert "server.env.A: '1:30'" in error_of(f"{PLAIN}server: {{env: {{A: 1:30}}}}\n")
    assert "write true, false or 'off'" in error_of(f"{HEAD}space: {{flags: {{x: {{choices: [off]}}}}}}\n")
    assert "quote it, or write it decimal" in error_of(f"{PLAIN}server: {{flags: {{x: 010}}}}\n")


@pytest.mark.parametrize("value", ["true", "[a]", "{a: b}", "null", "false", "[]"])
def test_an_environment_value_is_a_string_or_a_number(value: str) -> None:
    fixed = error_of(f"{PLAIN}server:\n  env:\n    NCCL_X: {value}\n")
    assert fixed.startswith("f.yaml:7: server.env.NCCL_X: an environment value is a string or a number")
    if value != "null":
        searched = error_of(f"{HEAD}space:\n  env:\n    NCCL_X:\n      choices: [a, {value}]\n")
        assert searched.startswith("f.yaml:7: space.env.NCCL_X.choices: an environment value is a string")


def test_a_duplicate_key_is_refused_and_names_both_lines() -> None:
    assert error_of(f"{PLAIN}model: other\n") == "f.yaml:5: model: duplicate key: it stands in line 2 already"
    assert "duplicate key" in error_of(f'{PLAIN}server:\n  env: {{A: x, "A": y}}\n')


@pytest.mark.parametrize("key", ["1", "1.5", "true", "null", "[a]", "{a: b}", "~"])
def test_a_key_is_text(key: str) -> None:
    assert errors_of(f"{PLAIN}? {key}\n: 1\n")[0].startswith("f.yaml:5: ")


# ---- anchors, tags, size -----------------------------------------------------------------------------------


def test_an_alias_is_the_value_it_names() -> None:
    config = parse(f"{HEAD}space:\n  flags:\n    a: {{choices: &c [1, 2]}}\n    b: {{choices: *c}}\n")
    assert config.space.flags["b"].choices == [1, 2]


def test_billion_laughs_are_refused_at_once() -> None:
    lines = ["a: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"b{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    began = time.process_time()
    assert "more than 20000 values" in error_of("\n".join(lines))
    # Expanded it would be 9^12 values.
    assert time.process_time() - began < 20


def test_an_anchor_inside_itself_is_refused() -> None:
    assert "inside its own anchor" in error_of(f"{PLAIN}server: &s\n  flags: *s\n")


def test_nesting_without_end_is_refused() -> None:
    assert "nested too deeply" in error_of(f"{PLAIN}server: {'[' * 20_000}")


def test_merge_keys_are_refused() -> None:
    text = f"{PLAIN}server:\n  env: &e {{A: x}}\n  flags:\n    <<: *e\n"
    assert error_of(text).startswith("f.yaml:8: server.flags: the merge key <<")


@pytest.mark.parametrize(
    "node",
    [
        "!!python/object/apply:os.system ['touch owned']",
        "!!set {a}",
        "!!omap [a: 1]",
        "!mine {a: 1}",
        "!mine [1]",
    ],
)
def test_tags_are_refused_and_run_nothing(node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "is not supported" in error_of(f"{PLAIN}server:\n  flags: {node}\n")
    assert not list(tmp_path.iterdir())


# ---- what is no search space -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "where", "what"),
    [
        (b"", ":1: ", "the file is empty"),
        (b"# only a comment\n", ":1: ", "the file is empty"),
        (b"- a\n- b\n", ":1: ", "no mapping"),
        (b"just text\n", ":1: ", "no mapping"),
        (b"\xff\xfe\x00binary", ": ", "UTF-8"),
        (b"study: a\nmodel: \x00\n", ":2: ", "U+0000"),
        (b"study: s\nmodel: [1\nspace: 2\n", ":3: ", ""),
        (b"study: s\n\tmodel: x\n", ":2: ", ""),
        (b"study: a\n---\nstudy: b\n", ":2: ", ""),
        (b"study: 'a\n", ":2: ", ""),
        (b"study: *nowhere\n", ":1: ", "undefined alias"),
    ],
)
def test_a_file_that_is_no_search_space_gives_one_line(tmp_path: Path, content: bytes, where: str, what: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_sweep(path)
    text = str(caught.value)
    assert text.startswith(f"{path}{where}")
    assert what in text
    assert "\n" not in text
    assert caught.value.__cause__ is None


def test_a_file_that_cannot_be_read_gives_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.yaml"):
        with pytest.raises(ConfigError, match="cannot be read") as caught:
            load_sweep(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)


# ---- where and what ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{SPACE}budgett: {{trials: 3}}\n", "f.yaml:5: budgett: unknown key; did you mean 'budget'?"),
        (f"{SPACE}budget:\n  trails: 3\n", "f.yaml:6: budget.trails: unknown key; did you mean 'trials'?"),
        (
            "space:\n  flags:\n    x:\n      chioces: [1]\n      choices: [1]\n",
            "f.yaml:7: space.flags.x.chioces: unknown key; did you mean 'choices'?",
        ),
        (
            "space:\n  env:\n    flags:\n      choices: [1]\n      whn: {}\n",
            "f.yaml:8: space.env.flags.whn: unknown key; did you mean 'when'?",
        ),
        ("space:\n  flag: {}\n", "f.yaml:5: space.flag: unknown key; did you mean 'flags'?"),
        (
            f"{SPACE}launcher:\n  kind: simulated\n  profil: tiny\n",
            "f.yaml:7: launcher.profil: unknown key; did you mean 'profile'?",
        ),
        (
            f"{SPACE}launcher:\n  kind: simulated\n  python: python3\n",
            "f.yaml:7: launcher.python: unknown key; valid here: kind, profile, startup_speedup, startup_timeout_s",
        ),
        (f"{SPACE}sampler:\n  kind: tpe\n  sede: 1\n", "f.yaml:7: sampler.sede: unknown key; did you mean 'seed'?"),
        (f"{SPACE}sampler:\n  kind: tpo\n", "f.yaml:6: sampler.kind: unknown kind 'tpo'; did you mean 'tpe'?"),
        (f"{SPACE}sampler:\n  seed: 1\n", "f.yaml:5: sampler.kind: this key is required; valid here: tpe, random"),
        (
            f"{SPACE}workload:\n  dataset:\n    knd: text\n",
            "f.yaml:7: workload.dataset.knd: unknown key; did you mean 'kind'?",
        ),
        (
            f"{SPACE}workload:\n  dataset:\n    kind: shareprefix\n",
            "f.yaml:7: workload.dataset.kind: unknown kind 'shareprefix'; did you mean 'shared_prefix'?",
        ),
        (
            f"{SPACE}workload:\n  dataset: {{kind: jsonl, path: x, vocab_size: 5}}\n",
            "f.yaml:6: workload.dataset.vocab_size: unknown key; valid here: kind, output_tokens, path, reuse, seed",
        ),
        (
            f"{SPACE}workload:\n  dataset: {{kind: sharegpt}}\n",
            "f.yaml:6: workload.dataset.path: this key is required",
        ),
        (
            f"{SPACE}workload:\n  dataset:\n    input_tokens: {{uniform: [512, 64]}}\n",
            "f.yaml:7: workload.dataset.input_tokens.uniform: no length is from 512 to 64: the lower end is 1 or more, "
            "and comes first",
        ),
        (
            f"{SPACE}workload:\n  dataset:\n    input_tokens: {{normal: {{mean: 5, std: 1, min: 9, max: 8}}}}\n",
            "f.yaml:7: workload.dataset.input_tokens.normal: min 9 is above max 8",
        ),
        (
            f"{SPACE}workload:\n  dataset:\n    input_tokens: {{normal: {{mean: 500, std: 1, max: 80}}}}\n",
            "f.yaml:7: workload.dataset.input_tokens.normal: the mean 500 is outside of 1 to 80",
        ),
        (
            f"{SPACE}workload:\n  dataset:\n    output_tokens: {{uniform: [1, 2], fixed: 3}}\n",
            "f.yaml:7: workload.dataset.output_tokens: lengths are a number, or exactly one of uniform, normal, "
            "lognormal",
        ),
        (
            f"{SPACE}workload:\n  dataset:\n    output_tokens: {{unifrom: [1, 2]}}\n",
            "f.yaml:7: workload.dataset.output_tokens.unifrom: unknown key; did you mean 'uniform'?",
        ),
        (
            f"{SPACE}workload:\n  dataset:\n    input_tokens: 12.5\n",
            "f.yaml:7: workload.dataset.input_tokens: lengths are a whole number, or one of {uniform: [64, 512]}, "
            "{normal: {mean: 512, std: 64}} (given: 12.5)",
        ),
        (
            f"{SPACE}workload:\n  dataset:\n    input_tokens: 0\n",
            "f.yaml:7: workload.dataset.input_tokens: Input should be greater than or equal to 1 (given: 0)",
        ),
        (
            f"{SPACE}workload:\n  dataset:\n    kind: shared_prefix\n    prefix_ratio: 1\n",
            "f.yaml:8: workload.dataset.prefix_ratio: Input should be less than 1",
        ),
        (
            f"{SPACE}workload:\n  dataset:\n    kind: shared_prefix\n    input_tokens: 1\n",
            "f.yaml:8: workload.dataset.input_tokens: one token cannot be shared and unique: at least 2",
        ),
        (
            f"{SPACE}workload:\n  api: chat\n  dataset:\n    kind: random_ids\n",
            "f.yaml:8: workload.dataset.kind: a chat is text, and random_ids are none: take `text`, or another api",
        ),
        (
            f"{SPACE}workload:\n  api: openai\n",
            "f.yaml:6: workload.api: Input should be 'completion', 'chat' or 'native' (given: 'openai')",
        ),
        (
            f"{SPACE}workload:\n  sampling: {{top_k: 0}}\n",
            "f.yaml:6: workload.sampling.top_k: none is left to draw from: -1 for all, or 1 and more",
        ),
        (
            f"{SPACE}workload:\n  sampling: {{stop_token_ids: [5]}}\n",
            "f.yaml:6: workload.sampling.stop_token_ids: SGLang heeds none of them while ignore_eos is true: set that "
            "to false, or leave them out",
        ),
        (
            f"{SPACE}workload:\n  concurrency: [1, 8, 2000]\n",
            "f.yaml:6: workload.concurrency.2: Input should be less than or equal to 1024 (given: 2000)",
        ),
        (
            f"{SPACE}workload:\n  concurrency: [8, 1]\n",
            "f.yaml:6: workload.concurrency: the ladder goes up, each concurrency once: [1, 8, 32]",
        ),
        (f"{SPACE}budget:\n  trials: '5'\n", "f.yaml:6: budget.trials: here stands a whole number (given: '5')"),
        (f"{SPACE}budget:\n  trials: true\n", "f.yaml:6: budget.trials: here stands a whole number (given: True)"),
        (f"{SPACE}budget:\n  time: 30\n", "f.yaml:6: budget.time: here stands text; quote it (given: 30)"),
        (
            f"{SPACE}budget:\n  time: '30'\n",
            "f.yaml:6: budget.time: '30' is no duration; write 90s, 30m, 2h or 1h30m",
        ),
        (f"{SPACE}node: 8\n", "f.yaml:5: node: here stands a mapping of keys and values (given: 8)"),
        ("space: [a]\n", "f.yaml:4: space: here stands a mapping of keys and values"),
        (
            f"{SPACE}server:\n  flags:\n    tp-size: 8\n    --tp: 8\n",
            "f.yaml:8: server.flags.--tp: '--tp': a flag is written without leading dashes, with dashes: tp-size",
        ),
        (
            "space:\n  flags:\n    tp_size: {choices: [1]}\n",
            "f.yaml:6: space.flags.tp_size: 'tp_size': a flag is written without leading dashes, with dashes: tp-size",
        ),
        (
            f"{SPACE}server:\n  flags:\n    x: null\n",
            "f.yaml:7: server.flags.x: null stands in `choices` only; to leave a flag out, leave its line out",
        ),
        (
            f"{SPACE}pareto:\n- output_tokens_per_s@8\n- output_tokens_per_s@1024\n",
            "f.yaml:7: pareto.1: output_tokens_per_s@1024 is not measured: the ladder is [1, 8, 32, 128]",
        ),
        (
            f"{SPACE}constraints:\n\n- ttft_ms.p99@9 <= 4\n",
            "f.yaml:7: constraints.0: ttft_ms.p99@9 is not measured: the ladder is [1, 8, 32, 128]",
        ),
        (
            f"{SPACE}server:\n  flags: {{schedule-policy: fcfs}}\n",
            "f.yaml:4: space.flags.schedule-policy: it stands in server.flags and in space.flags: keep one",
        ),
        (
            "space:\n  flags: {x: {choices: [1]}}\n  env:\n    x: {choices: [1]}\n",
            "f.yaml:7: space.env.x: it stands in space.flags too: keep one",
        ),
        (
            "space:\n  flags:\n    a: {choices: [1, 2, 1.0]}\n",
            "f.yaml:6: space.flags.a: the choice 1.0 is listed twice",
        ),
        (
            "space:\n  flags:\n    a: {choices: [1], int: [1, 2]}\n",
            "f.yaml:6: space.flags.a: a parameter has exactly one of choices, int, float",
        ),
        (
            "space:\n  flags:\n    a:\n      int: [1, 2, 3]\n",
            "f.yaml:7: space.flags.a.int: a range is its two ends: [1, 10]",
        ),
        ("space:\n  flags:\n    a:\n      float: 1.5\n", "f.yaml:7: space.flags.a.float: "
         "a range is its two ends: [1, 10] (given: 1.5)"),
        (
            "space:\n  flags:\n    a: {int: [5, 2]}\n",
            "f.yaml:6: space.flags.a: the range is empty: 5 is above 2",
        ),
        (
            "space:\n  flags:\n    a: {int: [1, 2]}\n    b:\n      choices: [1]\n      when:\n        aa: 1\n",
            "f.yaml:10: space.flags.b.when.aa: no parameter of the space has this name; did you mean 'a'?",
        ),
        (
            "space:\n  flags:\n    a: {choices: [1, 2]}\n    b:\n      choices: [1]\n      when:\n        a: [2, 3]\n",
            "f.yaml:10: space.flags.b.when.a: a never takes the value 3",
        ),
        (
            "space:\n  flags:\n    z: {choices: [1], when: {a: 1}}\n    a: {choices: [1], when: {c: 1}}\n"
            "    b: {choices: [1]}\n    c:\n      choices: [1]\n      when: {a: 1}\n",
            "f.yaml:7: space.flags.a.when: the conditions form a cycle: a needs c needs a",
        ),
        (
            "space:\n  flags:\n    a: {choices: [1]}\n    b: {choices: [1], when: {a: []}}\n",
            "f.yaml:7: space.flags.b.when.a: the condition names no value, so it never holds",
        ),
    ],
)  # fmt: skip
def test_an_error_names_line_key_and_what_to_write(body: str, expected: str) -> None:
    assert error_of(HEAD + body) == expected


def test_python_names_of_fields_are_no_keys() -> None:
    lines = errors_of(f"{HEAD}space:\n  flags:\n    a:\n      int_range: [1, 2]\n")
    assert any(line.startswith("f.yaml:7: space.flags.a.int_range: unknown key") for line in lines)


def test_each_error_has_its_own_line() -> None:
    text = f"{HEAD}space:\n  flags:\n    x: {{chioces: [1], choices: [1]}}\nnodes: {{gpus: 1}}\nbudget: {{trials: 0}}\n"
    assert errors_of(text) == [
        "f.yaml:6: space.flags.x.chioces: unknown key; did you mean 'choices'?",
        "f.yaml:8: budget.trials: Input should be greater than or equal to 1 (given: 0)",
        "f.yaml:7: nodes: unknown key; did you mean 'node'?",
    ]


def test_a_required_key_is_named() -> None:
    assert errors_of("study: s\nmodel: m\n") == [
        "f.yaml:1: space: this key is required",
        "f.yaml:1: score: this key is required",
    ]


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a b"])
def test_a_study_is_named_like_a_folder(name: str) -> None:
    assert error_of(PLAIN.replace("study: s", f"study: '{name}'")).startswith("f.yaml:1: study: ")


# ---- the simulated block -----------------------------------------------------------------------------------


def test_the_block_applies_to_the_simulated_config_alone() -> None:
    written, simulated = parse_sweep(
        f"{PLAIN}budget: {{trials: 24, time: 2h}}\nsimulated:\n  budget: {{trials: 16}}\n", "f.yaml"
    )
    assert (written.budget.trials, simulated.budget.trials, simulated.budget.time) == (24, 16, "2h")


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("budget: {trails: 1}", "f.yaml:9: simulated.budget.trails: unknown key; did you mean 'trials'?"),
        ("workloads: {}", "f.yaml:9: simulated.workloads: unknown key; did you mean 'workload'?"),
        ("launcher: {kind: sglang}", "f.yaml:9: simulated.launcher.kind: the block is for the simulated launcher, "
         "not 'sglang'"),
        ("launcher: {profle: tiny}", "f.yaml:9: simulated.launcher.profle: unknown key; did you mean 'profile'?"),
        ("model: other", "f.yaml:9: simulated.model: the block resizes a study; it cannot change model"),
        ("space: {}", "f.yaml:9: simulated.space: the block resizes a study; it cannot change space"),
        ("simulated: {}", "f.yaml:9: simulated.simulated: the block resizes a study; it cannot change simulated"),
        ("budget: {trials: 0}", "f.yaml:9: simulated.budget.trials: Input should be greater than or equal "
         "to 1 (given: 0)"),
        ("workload: {level: {min_s: 500}}", "f.yaml:9: simulated.workload.level: min_s 500.0 is above max_s 120.0"),
        ("workload: {concurrency: [1]}", "f.yaml:3: score.concurrency: output_tokens_per_s@8 is not measured: "
         "the ladder is [1]"),
    ],
)  # fmt: skip
def test_an_error_of_the_block_names_its_own_line(block: str, expected: str) -> None:
    assert error_of(f"{PLAIN}budget:\n  trials: 5\n\nsimulated:\n  {block}\n") == expected


@pytest.mark.parametrize(
    "own", ["", "launcher: {kind: sglang, python: p}\n", "launcher: {kind: auto, profile: a, python: p}\n"]
)
def test_the_block_gives_the_simulated_launcher_whatever_the_files_own_is(own: str) -> None:
    text = f"{PLAIN}{own}simulated:\n  launcher: {{startup_speedup: 300}}\n"
    launcher = parse_sweep(text, "f.yaml")[1].launcher
    assert launcher.kind == "simulated"
    assert launcher.startup_speedup == 300
    assert launcher.profile == ("a" if "profile: a" in own else "tiny")


def test_the_shipped_spaces_are_read() -> None:
    folder = Path(__file__).parents[2] / "search_spaces"
    spaces = sorted(folder.glob("*.yaml"))
    assert spaces
    for space in spaces:
        written, simulated = load_sweep(space)
        assert written.study == space.stem
        assert simulated.space == written.space
