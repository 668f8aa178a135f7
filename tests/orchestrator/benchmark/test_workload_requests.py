import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.benchmark.datasets.load import make_prompts
from orchestrator.benchmark.datasets.random_ids import prompt_ids
from orchestrator.benchmark.datasets.tokenizer import SimulatedTokenizer
from orchestrator.benchmark.workload import requests
from orchestrator.datasets import RandomIds, Text
from orchestrator.workload import Sampling, Workload


def bodies(workload: Workload, concurrency: int, count: int) -> list[bytes]:
    return [r.body for r in itertools.islice(requests(workload, concurrency), count)]


def load(body: bytes) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(body)
    return loaded


def test_the_same_level_gets_the_same_requests_and_another_level_or_seed_others() -> None:
    workload = Workload(dataset=RandomIds(input_tokens=16, seed=3))
    other_seed = Workload(dataset=RandomIds(input_tokens=16, seed=4))
    assert bodies(workload, 8, 5) == bodies(workload, 8, 5)
    everything = [*bodies(workload, 8, 5), *bodies(workload, 32, 5), *bodies(other_seed, 8, 5)]
    assert len(set(everything)) == 15
    # Not in their leading tokens alone.
    tails = {tuple(load(bodies(workload, concurrency, 1)[0])["prompt"][4:]) for concurrency in (8, 32)}
    assert len(tails) == 2


def test_no_two_prompts_of_a_level_share_even_their_first_token() -> None:
    dataset = RandomIds(input_tokens=64, vocab_size=2048)
    prompts = [prompt_ids(dataset, 512, i, 64) for i in range(2048)]
    assert len({p[0] for p in prompts}) == 2048


@pytest.mark.parametrize(("vocab", "length", "count"), [(2, 6, 64), (3, 4, 81), (10, 2, 100), (7, 1, 7)])
def test_prompts_stay_unique_until_every_possible_one_is_used(vocab: int, length: int, count: int) -> None:
    dataset = RandomIds(input_tokens=length, vocab_size=vocab)
    assert len({tuple(prompt_ids(dataset, 1, i, length)) for i in range(count)}) == count


def test_prompts_have_the_asked_length_and_stay_inside_the_vocabulary() -> None:
    dataset = RandomIds(input_tokens=33, vocab_size=50)
    for index in (0, 1, 49, 50, 10_000):
        ids = prompt_ids(dataset, 4, index, 33)
        assert len(ids) == 33
        assert all(0 <= i < 50 for i in ids)


def test_completions_ask_for_a_stream_with_usage_in_every_event() -> None:
    workload = Workload(
        dataset=RandomIds(input_tokens=7, output_tokens=9), sampling=Sampling(temperature=0.5, ignore_eos=False)
    )
    request = next(requests(workload, 1, "some/model"))
    body = load(request.body)
    assert (request.index, request.path, request.output_tokens) == (0, "/v1/completions", 9)
    assert len(body["prompt"]) == 7
    assert body["model"] == "some/model"
    assert (body["max_tokens"], body["temperature"], body["ignore_eos"]) == (9, 0.5, False)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_native_requests_carry_ids_and_sampling_params() -> None:
    workload = Workload(api="native", dataset=RandomIds(input_tokens=7, output_tokens=9))
    request = next(requests(workload, 1))
    body = load(request.body)
    assert request.path == "/generate"
    assert len(body["input_ids"]) == 7
    assert body["sampling_params"]["max_new_tokens"] == 9
    assert body["stream"] is True


def test_a_chat_sends_one_message_of_text() -> None:
    workload = Workload(api="chat", dataset=Text(input_tokens=20, output_tokens=9))
    request = next(requests(workload, 1, "some/model", make_prompts(workload, Path(), SimulatedTokenizer(2048))))
    body = load(request.body)
    assert request.path == "/v1/chat/completions"
    (message,) = body["messages"]
    assert message["role"] == "user"
    assert len(message["content"]) > 20
    assert (body["model"], body["max_completion_tokens"]) == ("some/model", 9)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_without_a_tokenizer_text_is_sent_as_text() -> None:
    for api, name in (("completion", "prompt"), ("native", "text")):
        workload = Workload(api=api, dataset=Text(input_tokens=20))
        assert len(load(next(requests(workload, 1)).body)[name]) == 80


@pytest.mark.parametrize(("api", "seed"), [("completion", "seed"), ("chat", "seed"), ("native", "sampling_seed")])
def test_every_sampling_parameter_is_sent_by_the_name_that_the_endpoint_knows(api: Any, seed: str) -> None:
    asked = {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1}
    sampling = Sampling(**asked, seed=5, stop=("END",), stop_token_ids=(3, 4), ignore_eos=False)  # type: ignore[arg-type]
    body = load(next(requests(Workload(api=api, dataset=Text(), sampling=sampling), 1)).body)
    sent = body["sampling_params"] if api == "native" else body
    expected = {**asked, seed: 5, "stop": ["END"], "stop_token_ids": [3, 4], "ignore_eos": False}
    assert {name: sent.get(name) for name in expected} == expected


def test_what_is_not_asked_is_told_to_be_off_and_not_left_to_the_models_defaults() -> None:
    body = load(next(requests(Workload(dataset=RandomIds()), 1)).body)
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (0, 1, -1, 0)
    assert body["repetition_penalty"] == 1
    assert body.keys().isdisjoint({"stop", "stop_token_ids", "seed"})


@pytest.mark.parametrize(
    ("sampling", "exact"),
    [(Sampling(), True), (Sampling(ignore_eos=False), False), (Sampling(stop=("x",)), False)],
)
def test_an_answer_that_may_stop_by_itself_may_be_shorter(sampling: Sampling, exact: bool) -> None:
    assert next(requests(Workload(dataset=RandomIds(), sampling=sampling), 1)).exact is exact


def test_each_request_asks_for_as_many_tokens_as_were_drawn_for_it() -> None:
    workload = Workload(dataset=RandomIds(output_tokens={"uniform": (5, 50)}))
    first = list(itertools.islice(requests(workload, 1), 40))
    assert [load(request.body)["max_tokens"] for request in first] == [request.output_tokens for request in first]
    assert len({request.output_tokens for request in first}) > 10
