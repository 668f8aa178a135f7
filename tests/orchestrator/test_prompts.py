"""Prompts of a sweep are made, counted and doubted before anything starts."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from launchers.simulated.tokens import encode
from orchestrator.benchmark.datasets.passages import Passages
from orchestrator.config import SweepConfig
from orchestrator.prompts import fewest_requests, load_prompts, prompt_warnings, sent_ids
from orchestrator.yaml_values import ConfigError

REAL = {"kind": "sglang"}
SIMULATED = {"kind": "simulated", "profile": "tiny"}


def config(dataset: dict[str, Any], launcher: dict[str, Any] = SIMULATED, **more: Any) -> SweepConfig:
    workload = {"dataset": dataset, "concurrency": [4], "level": {"requests_per_user": 2}, **more.pop("workload", {})}
    return SweepConfig.model_validate(
        {
            "study": "s",
            "model": "m",
            "launcher": launcher,
            "space": {"flags": {"max-running-requests": {"choices": [4, 8]}}},
            "workload": workload,
            "score": {"metric": "output_tokens_per_s", "concurrency": 4},
            **more,
        }
    )


def write(folder: Path, count: int) -> dict[str, Any]:
    (folder / "p.jsonl").write_text("".join(json.dumps({"prompt": f"p{n}"}) + "\n" for n in range(count)))
    return {"kind": "jsonl", "path": "p.jsonl"}


def test_on_the_simulated_server_lengths_are_as_it_counts_them(tmp_path: Path) -> None:
    prompts = load_prompts(config({"kind": "text", "input_tokens": 40}, workload={"api": "chat"}), tmp_path)
    text = prompts.prompt(4, 0).text
    assert text is not None
    assert len(encode(text, 32_000)) == 40
    assert prompts.warnings == ()


@pytest.mark.parametrize("kind", ["text", "shared_prefix", "sharegpt"])
def test_without_the_models_tokenizer_lengths_are_said_to_be_estimates(kind: str, tmp_path: Path) -> None:
    talk = [{"from": "human", "value": "w " * 20}, {"from": "gpt", "value": "w " * 20}]
    (tmp_path / "s.json").write_text(json.dumps([{"conversations": talk}]))
    dataset = {"kind": kind} | ({"path": "s.json", "reuse": True} if kind == "sharegpt" else {})
    prompts = load_prompts(config(dataset, REAL), tmp_path, {"HOME": str(tmp_path)})
    assert "estimated, 4 bytes a token: the tokenizer of m is not on this machine" in prompts.warnings[0]
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    prompts = load_prompts(config(dataset, REAL), tmp_path, {"HOME": str(tmp_path)})
    assert "m has no tokenizer.json here" in prompts.warnings[0]


def test_datasets_that_count_nothing_ask_for_no_tokenizer(tmp_path: Path) -> None:
    for dataset in ({"kind": "random_ids"}, write(tmp_path, 20)):
        assert load_prompts(config(dataset, REAL), tmp_path, {"HOME": str(tmp_path)}).warnings == ()


def test_the_models_own_tokenizer_counts_where_it_is_on_the_disk(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    model = library.models.WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]")
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    for name in ("m", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    tokenizer.save(str(tmp_path / "m" / "tokenizer.json"))
    asked = config({"kind": "text", "input_tokens": 40}, REAL, workload={"api": "chat"})
    prompts = load_prompts(asked, tmp_path, {"HOME": str(tmp_path)})
    text = prompts.prompt(4, 0).text
    assert text is not None
    assert len(text.split()) == 40
    assert prompts.warnings == ()
    flags = {"flags": {"tokenizer-path": "other"}}
    elsewhere = load_prompts(config({"kind": "text"}, REAL, server=flags), tmp_path, {"HOME": str(tmp_path)})
    assert "other has no tokenizer.json here" in elsewhere.warnings[0]
    shutil.copy(tmp_path / "m" / "config.json", tmp_path / "other" / "tokenizer.json")
    with pytest.raises(ConfigError, match=r"other/tokenizer\.json: is no tokenizer"):
        load_prompts(config({"kind": "text"}, REAL, server=flags), tmp_path, {"HOME": str(tmp_path)})


def test_without_the_package_lengths_are_estimated_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "m").mkdir()
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / "m" / name).write_text("{}")
    (warning,) = load_prompts(config({"kind": "text"}, REAL), tmp_path, {"HOME": str(tmp_path)}).warnings
    assert "the package tokenizers is not installed" in warning


def test_a_file_with_fewer_prompts_than_a_level_sends_is_refused_unless_reuse_is_asked_for(tmp_path: Path) -> None:
    dataset = write(tmp_path, 11)
    assert fewest_requests(config(dataset).workload) == 12
    with pytest.raises(ConfigError, match=r"p\.jsonl holds 11 distinct prompts, .*sends 12 at least.*reuse: true"):
        load_prompts(config(dataset), tmp_path)
    assert "those that come again" in load_prompts(config(dataset | {"reuse": True}), tmp_path).warnings[0]
    assert load_prompts(config(write(tmp_path, 12)), tmp_path).warnings == ()


def test_copies_of_a_prompt_are_one_prompt(tmp_path: Path) -> None:
    dataset = write(tmp_path, 11)
    text = (tmp_path / "p.jsonl").read_text()
    (tmp_path / "p.jsonl").write_text(text * 100)
    match = r"holds 11 distinct prompts \(1,100 with those .* more than once\), and the largest level sends 12 at least"
    with pytest.raises(ConfigError, match=match):
        load_prompts(config(dataset), tmp_path)


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        ({"kind": "random_ids", "input_tokens": 3, "vocab_size": 2}, "random_ids holds 8 distinct prompts.*vocab_size"),
        ({"kind": "text"}, r"text holds 13 distinct prompts.*prompts of your own \(jsonl\)"),
        ({"kind": "shared_prefix"}, "shared_prefix holds 13 distinct prompts"),
    ],
)
def test_too_few_prompts_of_any_kind_are_refused(
    dataset: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Passages, "count", 13)
    fits = {"level": {"requests_per_user": 1}}
    assert load_prompts(config(dataset, workload=fits), tmp_path).unique in (8, 13)
    with pytest.raises(ConfigError, match=says):
        load_prompts(config(dataset, workload={"level": {"requests_per_user": 3}}), tmp_path)


def test_what_the_prompts_of_a_file_have_in_common_is_told(tmp_path: Path) -> None:
    dataset = write(tmp_path, 12)
    lines = [json.dumps({"prompt": "s" * 90 + str(n)[::-1]}) for n in range(10, 22)]
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    (warning,) = load_prompts(config(dataset), tmp_path).warnings
    assert "of the text of p.jsonl 98 % stands at the beginning of another prompt too" in warning


@pytest.mark.parametrize(
    ("dataset", "algorithms", "word"),
    [
        ({"kind": "random_ids"}, [None, "EAGLE3"], "means nothing"),
        ({"kind": "random_ids"}, [None], None),
        ({"kind": "random_ids"}, [], None),
        ({"kind": "random_ids", "natural": True}, ["EAGLE3"], None),
        ({"kind": "text"}, ["EAGLE3"], None),
        ({"kind": "text"}, ["ngram"], "NGRAM drafts from all text"),
        ({"kind": "jsonl", "path": "x"}, ["NGRAM"], None),
    ],
)
def test_speculation_on_text_that_says_nothing_of_it_is_warned_about(
    dataset: dict[str, Any], algorithms: list[str | None], word: str | None
) -> None:
    flags = {"speculative-algorithm": algorithms} if algorithms else {}
    warnings = prompt_warnings(config(dataset).workload, flags)
    assert len(warnings) == (word is not None)
    assert word is None or word in warnings[0]


@pytest.mark.parametrize(
    ("lengths", "told"),
    [
        ({"normal": {"mean": 512, "std": 400, "min": 256, "max": 1024}}, "a mean of 605 tokens, not 512"),
        ({"normal": {"mean": 512, "std": 64, "min": 16, "max": 900}}, None),
        ({"lognormal": {"mean": 512, "std": 400, "max": 700}}, "drawn again"),
        ({"uniform": [1, 900]}, None),
        (512, None),
    ],
)
@pytest.mark.parametrize("name", ["input_tokens", "output_tokens"])
def test_lengths_whose_limits_move_their_mean_are_warned_about(lengths: Any, told: str | None, name: str) -> None:
    warnings = prompt_warnings(config({"kind": "text", name: lengths}).workload, {})
    assert len(warnings) == (told is not None)
    assert told is None or (f"workload.dataset.{name}: " in warnings[0] and told in warnings[0])


def test_only_ids_drawn_at_random_have_to_fit_the_vocabulary() -> None:
    assert sent_ids(config({"kind": "random_ids", "vocab_size": 500}).workload) == 500
    assert sent_ids(config({"kind": "text"}).workload) == 0
