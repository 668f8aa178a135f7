"""Prompts by dataset: exact in length, the same for the same seed, different where they must be."""

from __future__ import annotations

import itertools
import json
import pickle
import statistics
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.benchmark.datasets.files import FilePrompts
from orchestrator.benchmark.datasets.load import make_prompts
from orchestrator.benchmark.datasets.passages import BEGINNING_CHARS, Passages, corpus
from orchestrator.benchmark.datasets.prompts import Order, Prompt, Prompts, draw, mean_of_bell
from orchestrator.benchmark.datasets.sharing import share_in_common
from orchestrator.benchmark.datasets.tokenizer import ModelTokenizer, SimulatedTokenizer, Tokens
from orchestrator.datasets import JSONL, Lengths, RandomIds, SharedPrefix, ShareGPT, Text
from orchestrator.workload import Workload
from orchestrator.yaml_values import ConfigError

TOKENIZER = SimulatedTokenizer(32_000)


class Led(SimulatedTokenizer):
    """Its server puts a token before every text."""

    def __init__(self) -> None:
        super().__init__(32_000)
        self.lead = (1,)


def first(prompts: Prompts, count: int, key: int | str = 8) -> list[Prompt]:
    return list(itertools.islice(prompts.level(key), count))


def text_prompts(api: Any = "completion", tokenizer: Any = TOKENIZER, **dataset: Any) -> Prompts:
    kind = SharedPrefix if "groups" in dataset or "prefix_ratio" in dataset else Text
    return make_prompts(Workload(api=api, dataset=kind(**dataset)), Path(), tokenizer)


def ids_of(prompts: list[Prompt]) -> list[tuple[int, ...]]:
    assert all(prompt.ids is not None for prompt in prompts)
    return [tuple(prompt.ids or ()) for prompt in prompts]


def texts_of(prompts: list[Prompt]) -> list[str]:
    assert all(prompt.text is not None for prompt in prompts)
    return [prompt.text or "" for prompt in prompts]


# ---- lengths and order -------------------------------------------------------------------------------------


def lengths(count: int = 4000, **kind: Any) -> list[int]:
    return [draw(Lengths(**kind), f"seed/{index}") for index in range(count)]


def test_drawn_lengths_are_distributed_as_asked() -> None:
    flat = lengths(uniform=(10, 20))
    assert set(flat) == set(range(10, 21))
    bell = lengths(normal={"mean": 500, "std": 50})
    assert statistics.mean(bell) == pytest.approx(500, abs=5)
    assert statistics.stdev(bell) == pytest.approx(50, rel=0.1)
    skew = lengths(lognormal={"mean": 500, "std": 400})
    assert statistics.mean(skew) == pytest.approx(500, rel=0.06)
    assert statistics.stdev(skew) == pytest.approx(400, rel=0.2)
    assert statistics.median(skew) < 450


def test_limits_are_kept_and_lengths_do_not_heap_up_at_them() -> None:
    cut = lengths(normal={"mean": 100, "std": 50, "min": 90, "max": 130})
    assert (min(cut), max(cut)) == (90, 130)
    assert cut.count(90) < 0.1 * len(cut)
    assert set(lengths(10, normal={"mean": 5, "std": 0})) == {5}


@pytest.mark.parametrize(
    "kind",
    [
        {"normal": {"mean": 512, "std": 400, "min": 256, "max": 1024}},
        {"normal": {"mean": 512, "std": 400}},
        {"normal": {"mean": 512, "std": 64}},
        {"normal": {"mean": 5, "std": 3, "min": 4, "max": 6}},
        {"normal": {"mean": 512, "std": 0}},
        {"lognormal": {"mean": 512, "std": 400, "max": 700}},
        {"lognormal": {"mean": 512, "std": 300, "min": 400}},
        # So far off that requests run out of draws.
        {"normal": {"mean": 512, "std": 1e9, "min": 500, "max": 600}},
    ],
)
def test_the_mean_that_is_told_is_the_one_that_is_drawn(kind: dict[str, Any]) -> None:
    drawn = lengths(10_000, **kind)
    assert mean_of_bell(Lengths(**kind)) == pytest.approx(statistics.mean(drawn), rel=0.02)


def test_lengths_without_a_curve_have_no_mean_to_be_told() -> None:
    assert mean_of_bell(Lengths(fixed=5)) is None
    assert mean_of_bell(Lengths(uniform=(1, 5))) is None


@pytest.mark.parametrize("size", [1, 2, 3, 10, 97, 1000])
def test_an_order_takes_every_place_once_before_any_comes_again(size: int) -> None:
    for seed in range(20):
        order = Order(f"seed {seed}", size)
        lap = [order[place] for place in range(size)]
        assert sorted(lap) == list(range(size))
        assert [order[size + place] for place in range(size)] == lap


# ---- text --------------------------------------------------------------------------------------------------


def test_passages_have_exactly_the_tokens_that_were_asked_for() -> None:
    for prompt in first(text_prompts(input_tokens=100), 200):
        assert prompt.ids is not None
        assert len(prompt.ids) == 100
    asked = text_prompts(input_tokens={"uniform": (10, 400)})
    drawn = [draw(Lengths(uniform=(10, 400)), f"0/8/{index}/in") for index in range(60)]
    assert [len(ids) for ids in ids_of(first(asked, 60))] == drawn


def test_passages_are_the_corpus_word_for_word() -> None:
    source = array("i", TOKENIZER.encode(corpus()).ids).tobytes()
    for ids in ids_of(first(text_prompts(input_tokens=64), 50)):
        assert array("i", ids).tobytes() in source


def test_a_chat_gets_text_that_counts_again_to_what_was_asked() -> None:
    prompts = text_prompts("chat", input_tokens=100)
    assert {len(TOKENIZER.encode(text).ids) for text in texts_of(first(prompts, 100))} == {100}
    assert prompts.warnings == ()


class Merging(SimulatedTokenizer):
    """Counts a passage alone otherwise than in its place, though each of its words the same."""

    def encode(self, text: str) -> Tokens:
        tokens = super().encode(text)
        skipped = 3 if 200 < len(text) < 10_000 else 0
        return Tokens(tokens.ids[skipped:], tokens.starts[skipped:], tokens.ends[skipped:])


def test_text_whose_length_is_off_is_said_to_be() -> None:
    (warning,) = text_prompts("chat", Merging(32_000), input_tokens=100).warnings
    assert "up to 3 token(s)" in warning


def test_no_two_prompts_of_a_level_begin_alike() -> None:
    texts = texts_of(first(text_prompts("chat", input_tokens=32), 20_000))
    assert len({text[:BEGINNING_CHARS] for text in texts}) == len(texts)


def test_the_corpus_is_large_enough_for_the_largest_level() -> None:
    unique = text_prompts().unique
    assert unique is not None
    assert unique > 1024 * 64


def test_levels_and_seeds_have_prompts_of_their_own_and_the_same_again() -> None:
    def some(key: int | str, seed: int = 0) -> list[tuple[int, ...]]:
        return ids_of(first(text_prompts(input_tokens=32, seed=seed), 20, key))

    assert some(8) == some(8)
    assert len({*some(8), *some(32), *some("2.5 req/s"), *some(8, seed=1)}) == 80


def test_prompts_travel_and_stay_the_same() -> None:
    prompts = text_prompts(groups=2)
    again = pickle.loads(pickle.dumps(prompts))
    assert first(again, 5) == first(prompts, 5)
    assert again.digest == prompts.digest


def test_a_passage_longer_than_the_text_begins_it_again() -> None:
    text = " ".join(f"word{n}" for n in range(50))
    passages = Passages(text, TOKENIZER)
    whole = list(TOKENIZER.encode(text).ids)
    long = passages.ids(passages.count - 1, 3 * len(whole))
    assert len(long) == 3 * len(whole)
    assert long[-len(whole) :] != whole
    assert str(whole)[1:-1] in str(long)
    # Each lap ends with a token that the end of the text cuts short.
    assert 1990 <= len(Passages(text, None).text(0, 500)) <= 2000


def test_ids_bring_along_what_the_server_puts_before_a_text() -> None:
    for ids in ids_of(first(text_prompts(tokenizer=Led(), input_tokens=50), 20)):
        assert (len(ids), ids[0]) == (50, 1)
    shared = ids_of(first(text_prompts(tokenizer=Led(), input_tokens=50, groups=2, prefix_ratio=0.5), 20))
    assert {(len(ids), ids[0]) for ids in shared} == {(50, 1)}


# ---- shared prefixes ---------------------------------------------------------------------------------------


def alike(one: Sequence[Any], other: Sequence[Any]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("ratio", [0.25, 0.9])
def test_a_group_shares_the_stated_part_of_its_prompts_and_nothing_more(ratio: float) -> None:
    prompts = ids_of(first(text_prompts(input_tokens=200, groups=4, prefix_ratio=ratio), 80))
    for group in range(4):
        members = prompts[group::4]
        shares = [alike(one, other) for one, other in itertools.combinations(members, 2)]
        assert min(shares) == round(200 * ratio)
        # A few of their own tokens may agree by chance.
        assert max(shares) <= round(200 * ratio) + BEGINNING_CHARS // 4
    for one, other in itertools.combinations(prompts[:4], 2):
        assert alike(one, other) < BEGINNING_CHARS // 4


def test_a_shared_prefix_as_text_is_exact_to_a_token_too() -> None:
    prompts = text_prompts("chat", input_tokens=200, groups=2, prefix_ratio=0.5)
    counts = [len(TOKENIZER.encode(text).ids) for text in texts_of(first(prompts, 50))]
    assert max(abs(count - 200) for count in counts) <= 1
    one, _, other = texts_of(first(prompts, 3))
    assert len(TOKENIZER.encode(one[: alike(one, other)]).ids) >= 100


@pytest.mark.parametrize(("ratio", "length"), [(0.01, 10), (0.99, 10), (0.5, 2)])
def test_every_prompt_has_something_shared_and_something_of_its_own(ratio: float, length: int) -> None:
    prompts = ids_of(first(text_prompts(input_tokens=length, groups=1, prefix_ratio=ratio), 10))
    assert {len(ids) for ids in prompts} == {length}
    assert len({ids[0] for ids in prompts}) == 1
    assert len(set(prompts)) > 1


# ---- files -------------------------------------------------------------------------------------------------


def jsonl(folder: Path, *lines: Any, api: Any = "completion", **dataset: Any) -> Prompts:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "p.jsonl").write_text(text, encoding="utf-8")
    return make_prompts(Workload(api=api, dataset=JSONL(path="p.jsonl", **dataset)), folder)


def test_lines_give_prompts_and_their_own_or_the_datasets_output_tokens(tmp_path: Path) -> None:
    lines = [{"prompt": "one"}, "", {"prompt": "tw\u2028ö", "output_tokens": 7}]
    found = first(jsonl(tmp_path, *lines, output_tokens=9), 2)
    assert {(prompt.text, prompt.output_tokens) for prompt in found} == {("one", 9), ("tw\u2028ö", 7)}


def test_every_prompt_of_a_file_comes_once_before_any_comes_again(tmp_path: Path) -> None:
    lines = [{"prompt": f"p{n}"} for n in range(10)]
    assert len(first(jsonl(tmp_path, *lines), 20)) == 10
    prompts = jsonl(tmp_path, *lines, reuse=True)
    texts = [prompt.text for prompt in first(prompts, 20)]
    assert prompts.unique == 10
    assert len(set(texts[:10])) == 10
    assert texts[10:] == texts[:10]
    assert texts[:10] != [prompt.text for prompt in first(prompts, 10, "other level")]


def test_equal_prompts_of_a_file_are_one_whatever_their_answers(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "a"}]
    same = [{"content": "a", "role": "user"}]
    lines = [{"prompt": "a"}, {"prompt": "a", "output_tokens": 9}, {"messages": chat}, {"messages": same}]
    prompts = jsonl(tmp_path, *lines, *lines, {"prompt": "a "}, api="chat")
    assert isinstance(prompts, FilePrompts)
    assert (prompts.held, prompts.unique) == (9, 3)
    assert {(prompt.text, str(prompt.messages), prompt.output_tokens) for prompt in first(prompts, 9)} == {
        ("a", "None", 128), ("a ", "None", 128), (None, str(chat), 128),
    }  # fmt: skip


def test_what_the_prompts_of_a_file_have_in_common_is_known(tmp_path: Path) -> None:
    system = "s" * 60
    alike = [{"prompt": system + f"{n:040}"[::-1]} for n in range(50)]
    assert jsonl(tmp_path, *alike).shared == pytest.approx(0.61, abs=0.02)
    # Four of five lines stand alone.
    alone = [{"prompt": f"{n:03} " + "x" * 96} for n in range(200)]
    assert jsonl(tmp_path, *alike, *alone).shared == pytest.approx(0.61 / 5, abs=0.01)
    # A few words that many prompts begin with are none.
    assert jsonl(tmp_path, *alone, {"prompt": "What is the answer to X" + "x" * 80}).shared == 0.0
    assert text_prompts(groups=2, prefix_ratio=0.3).shared == 0.3
    assert text_prompts().shared == 0.0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("ab", max_size=8), max_size=12))
def test_the_share_in_common_is_that_of_the_best_other_text(texts: list[str]) -> None:
    def best(place: int) -> int:
        others = texts[:place] + texts[place + 1 :]
        return max((alike(texts[place], other) for other in others), default=0)

    total = sum(map(len, texts))
    found = sum(map(best, range(len(texts)))) / total if total else 0.0
    assert share_in_common(texts) == pytest.approx(found)


def test_of_random_ids_there_are_as_many_as_the_vocabulary_makes() -> None:
    def unique(**dataset: Any) -> int | None:
        return make_prompts(Workload(dataset=RandomIds(output_tokens=1, **dataset)), Path()).unique

    assert unique(input_tokens=3, vocab_size=5) == 125
    assert unique(input_tokens={"uniform": (2, 9)}, vocab_size=5) == 25
    assert unique(input_tokens=512) is None
    assert unique(input_tokens={"normal": {"mean": 500, "std": 5}}, vocab_size=100) is None
    prompts = make_prompts(Workload(dataset=RandomIds(input_tokens=3, vocab_size=5)), Path())
    assert len({tuple(ids) for ids in ids_of(first(prompts, 1000))}) == 125


def test_a_chats_messages_are_sent_as_they_are(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    prompts = jsonl(tmp_path, {"messages": chat}, {"prompt": "p"}, api="chat")
    assert {str(prompt.messages) for prompt in first(prompts, 2)} == {str(chat), "None"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "p.jsonl:2: is no JSON"),
        ([1], "p.jsonl:2: a line is an object"),
        ({}, "p.jsonl:2: a line has either prompt"),
        ({"prompt": ""}, "p.jsonl:2: a line has either prompt"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "p.jsonl:2: a line has either prompt"),
        ({"prompt": 5}, "p.jsonl:2: prompt is text"),
        ({"prompt": "a", "tokens": 3}, "p.jsonl:2: unknown key 'tokens'"),
        ({"prompt": "a", "output_tokens": 0}, "p.jsonl:2: output_tokens is a whole number from 1 on, not 0"),
        ({"messages": [{"role": "user", "content": "b"}]}, "p.jsonl:2: messages are a chat's"),
    ],
)
def test_a_bad_line_is_named(line: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jsonl") as error:
        jsonl(tmp_path, {"prompt": "good"}, line)
    assert expected in str(error.value)


def test_bad_messages_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"p\.jsonl:1: messages are a list of"):
        jsonl(tmp_path, {"messages": ["hello"]}, api="chat")


@pytest.mark.parametrize("kind", [JSONL, ShareGPT])
def test_a_file_that_is_missing_or_no_text_is_said_to_be(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.json: cannot be read .No such file.*where the sweep is started"):
        make_prompts(Workload(dataset=kind(path="no.json")), tmp_path)
    (tmp_path / "b.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"b\.json: is no text in UTF-8"):
        make_prompts(Workload(dataset=kind(path="b.json")), tmp_path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no prompt"):
        jsonl(tmp_path, "", "  ")


def sharegpt(folder: Path, content: Any, tokenizer: Any = TOKENIZER, **dataset: Any) -> Prompts:
    (folder / "s.json").write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return make_prompts(Workload(dataset=ShareGPT(path="s.json", **dataset)), folder, tokenizer)


def talk(question: Any, answer: Any, people: tuple[str, str] = ("human", "gpt")) -> dict[str, Any]:
    turns = [{"from": who, "value": text} for who, text in zip(people, (question, answer), strict=True)]
    return {"id": "x", "conversations": turns}


LONG = "what is the answer to the question that I asked you before"


def test_a_conversation_gives_its_first_question_and_the_length_of_its_answer(tmp_path: Path) -> None:
    answer = "aaaa bbbb cccc dddd eeee"
    (prompt,) = first(sharegpt(tmp_path, [talk(LONG, answer)]), 1)
    assert (prompt.text, prompt.output_tokens) == (LONG, 5)
    (fixed,) = first(sharegpt(tmp_path, [talk(LONG, answer)], output_tokens=64), 1)
    assert fixed.output_tokens == 64
    (estimated,) = first(sharegpt(tmp_path, [talk(LONG, answer)], None), 1)
    assert estimated.output_tokens == 6


def test_conversations_that_are_no_use_are_left_out(tmp_path: Path) -> None:
    good = talk(LONG, LONG, ("user", "assistant"))
    useless = [
        {}, "x", {"conversations": [{"from": "human", "value": LONG}]}, talk("hi", LONG), talk(LONG + "?", "ok"),
        talk(LONG + "!", LONG, ("gpt", "human")), talk(None, LONG), talk(f"{LONG} {LONG}", LONG), good,
    ]  # fmt: skip
    prompts = sharegpt(tmp_path, [good, *useless], max_input_tokens=20)
    assert prompts.unique == 1
    assert first(prompts, 1)[0].text == LONG


@pytest.mark.parametrize(
    ("content", "expected"),
    [("{", "is no JSON"), ({}, "holds no list of conversations"), ([talk("a", "b")], "none of its 1 conversations")],
)
def test_a_file_of_another_form_is_refused(content: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=expected):
        sharegpt(tmp_path, content)


def test_a_digest_changes_with_the_file_and_with_nothing_else(tmp_path: Path) -> None:
    one = jsonl(tmp_path, {"prompt": "a"}, {"prompt": "b"}).digest
    assert jsonl(tmp_path, {"prompt": "a"}, "", {"prompt": "b"}).digest == one
    assert jsonl(tmp_path, {"prompt": "a"}, {"prompt": "c"}).digest != one
    assert text_prompts().digest != text_prompts(tokenizer=SimulatedTokenizer(2048)).digest
    assert text_prompts().digest != text_prompts(tokenizer=None).digest


def test_of_a_huge_file_a_seeded_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.benchmark.datasets.files.MAX_PROMPTS", 10)
    entries = [(f"p{n}", None) for n in range(1000)]

    def kept(seed: int) -> set[str | None]:
        prompts = FilePrompts(JSONL(path="x", seed=seed), entries)
        assert prompts.unique == 10
        return {prompt.text for prompt in first(prompts, 30)}

    assert len(kept(0)) == 10
    assert kept(0) == kept(0) != kept(1)


# ---- a model's own tokenizer -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    """Byte-level BPE trained on the corpus, which puts BOS before every text, as Llama 3's does."""
    library = pytest.importorskip("tokenizers")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(vocab_size=4000, special_tokens=["<s>"], show_progress=False)
    tokenizer.train_from_iterator(corpus().splitlines(keepends=True), trainer)
    tokenizer.post_processor = library.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.enable_truncation(10)
    file = tmp_path_factory.mktemp("model") / "tokenizer.json"
    tokenizer.save(str(file))
    return ModelTokenizer(file)


def test_a_models_tokens_are_exact_and_begin_with_its_bos(model_tokenizer: ModelTokenizer) -> None:
    prompts = text_prompts(tokenizer=model_tokenizer, input_tokens=256)
    # What its maker trained with, a limit of ten tokens, is not kept.
    assert (prompts.unique or 0) > 10_000
    for ids in ids_of(first(prompts, 50)):
        assert (len(ids), ids[0]) == (256, 0)
        assert 0 not in ids[1:]


def test_a_chat_of_a_models_tokens_is_exact(model_tokenizer: ModelTokenizer) -> None:
    prompts = text_prompts("chat", model_tokenizer, input_tokens=256)
    counts = [len(model_tokenizer.encode(text).ids) for text in texts_of(first(prompts, 100))]
    assert counts == [256] * 100
    assert prompts.warnings == ()
