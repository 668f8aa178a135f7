import itertools
import json
from typing import Any

import pytest

from orchestrator.benchmark.workload import prompt_ids, requests
from orchestrator.workload import Sampling, SyntheticDataset, Workload


def bodies(workload: Workload, concurrency: int, count: int) -> list[bytes]:
    return [r.body for r in itertools.islice(requests(workload, concurrency), count)]


def load(body: bytes) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(body)
    return loaded


def test_the_same_level_gets_the_same_requests_and_another_level_or_seed_others() -> None:
    workload = Workload(dataset=SyntheticDataset(input_tokens=16, seed=3))
    other_seed = Workload(dataset=SyntheticDataset(input_tokens=16, seed=4))
    assert bodies(workload, 8, 5) == bodies(workload, 8, 5)
    everything = [*bodies(workload, 8, 5), *bodies(workload, 32, 5), *bodies(other_seed, 8, 5)]
    assert len(set(everything)) == 15
    # Not in their leading tokens alone.
    tails = {tuple(prompt_ids(workload.dataset, concurrency, 0)[4:]) for concurrency in (8, 32)}
    assert len(tails) == 2


def test_no_two_prompts_of_a_level_share_even_their_first_token() -> None:
    dataset = SyntheticDataset(input_tokens=64, vocab_size=2048)
    prompts = [prompt_ids(dataset, 512, i) for i in range(2048)]
    assert len({p[0] for p in prompts}) == 2048


@pytest.mark.parametrize(("vocab", "length", "count"), [(2, 6, 64), (3, 4, 81), (10, 2, 100), (7, 1, 7)])
def test_prompts_stay_unique_until_every_possible_one_is_used(vocab: int, length: int, count: int) -> None:
    dataset = SyntheticDataset(input_tokens=length, vocab_size=vocab)
    assert len({tuple(prompt_ids(dataset, 1, i)) for i in range(count)}) == count


def test_prompts_have_the_asked_length_and_stay_inside_the_vocabulary() -> None:
    dataset = SyntheticDataset(input_tokens=33, vocab_size=50)
    for index in (0, 1, 49, 50, 10_000):
        ids = prompt_ids(dataset, 4, index)
        assert len(ids) == 33
        assert all(0 <= i < 50 for i in ids)


def test_openai_requests_ask_for_a_stream_with_usage_in_every_event() -> None:
    workload = Workload(
        dataset=SyntheticDataset(input_tokens=7, output_tokens=9), sampling=Sampling(temperature=0.5, ignore_eos=False)
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
    workload = Workload(api="native", dataset=SyntheticDataset(input_tokens=7, output_tokens=9))
    request = next(requests(workload, 1))
    body = load(request.body)
    assert request.path == "/generate"
    assert len(body["input_ids"]) == 7
    assert body["sampling_params"] == {"max_new_tokens": 9, "temperature": 0.0, "top_p": 1.0, "ignore_eos": True}
    assert body["stream"] is True
