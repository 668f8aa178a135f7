"""The twin's endpoints over HTTP, against the shapes recorded from SGLang 0.5.23."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from simulated_twin import Twin, events, twin, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    with twin(tmp_path_factory.mktemp("twin"), "--enable-metrics", "--served-model-name", "tiny") as started:
        yield started


@pytest.fixture(scope="module")
def drafting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    flags = "--speculative-algorithm EAGLE3 --speculative-draft-model-path example/tiny-eagle3 "
    flags += "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 8"
    with twin(tmp_path_factory.mktemp("drafting"), "--enable-metrics", *flags.split()) as started:
        yield started


def counters(server: Twin) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(server.get("/metrics").text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_health_says_nothing_but_200(server: Twin) -> None:
    for path in ("/health", "/health_generate", "/ready"):
        answer = server.get(path)
        assert (answer.status_code, answer.content) == (200, b"")


def test_health_checks_run_through_the_engine_and_readiness_does_not(server: Twin) -> None:
    before = counters(server)
    server.get("/ready")
    assert counters(server)["sglang:queue_time_seconds_count"] == before["sglang:queue_time_seconds_count"]
    server.get("/health")
    after = counters(server)
    assert after["sglang:queue_time_seconds_count"] == before["sglang:queue_time_seconds_count"] + 1
    assert after["sglang:num_requests_total"] == before["sglang:num_requests_total"]


def test_native_answer_has_the_recorded_keys(server: Twin) -> None:
    answer = server.generate(8, prompt=[5, 6, 7, 8]).json()
    assert list(answer) == ["text", "output_ids", "meta_info"]
    assert len(answer["output_ids"]) == 8
    meta = answer["meta_info"]
    recorded = """id finish_reason prompt_tokens weight_version num_retractions storage_prefetch_wait
        storage_staging_wait forward_entry_time prefill_finished_time queue_time reasoning_tokens
        completion_tokens cached_tokens weight_versions cached_tokens_details dp_rank e2e_latency
        request_received_ts first_token_latency decode_throughput request_finished_ts"""
    assert set(recorded.split()) <= set(meta)
    assert meta["finish_reason"] == {"type": "length", "length": 8}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (4, 8)
    assert "spec_verify_ct" not in meta


def test_native_stream_repeats_everything_in_each_event(server: Twin) -> None:
    whole = server.generate(6, prompt=[50, 60, 70]).json()
    told = events(server.generate(6, prompt=[50, 60, 70], stream=True))
    assert told[-1] == "[DONE]"
    parsed = [json.loads(t) for t in told[:-1]]
    assert [len(p["output_ids"]) for p in parsed] == [1, 2, 3, 4, 5, 6]
    assert [p["meta_info"]["completion_tokens"] for p in parsed] == [1, 2, 3, 4, 5, 6]
    assert parsed[-1]["text"] == whole["text"]
    assert all(whole["text"].startswith(p["text"]) for p in parsed)
    assert [p["meta_info"]["finish_reason"] for p in parsed[:-1]] == [None] * 5
    assert parsed[-1]["meta_info"]["finish_reason"]["type"] == "length"
    assert parsed[-1]["meta_info"]["cached_tokens"] == 2


def test_completion_stream_sends_deltas_with_the_finish_reason_beside_the_last_text(server: Twin) -> None:
    body = {"model": "whatever", "prompt": [9, 8, 7], "max_tokens": 5, "ignore_eos": True}
    whole = server.post("/v1/completions", body).json()
    told = events(server.post("/v1/completions", body | {"stream": True}))
    assert told[-1] == "[DONE]"
    parsed = [json.loads(t) for t in told[:-1]]
    assert "".join(p["choices"][0]["text"] for p in parsed) == whole["choices"][0]["text"]
    assert [p["choices"][0]["finish_reason"] for p in parsed] == [None] * 4 + ["length"]
    assert list(parsed[0]) == ["id", "object", "created", "model", "choices", "usage"]
    assert list(parsed[0]["choices"][0]) == ["index", "text", "logprobs", "finish_reason", "matched_stop"]
    assert {p["usage"] for p in parsed} == {None}
    assert {p["model"] for p in parsed} == {"whatever"}
    assert whole["usage"]["completion_tokens"] == 5
    assert list(whole) == ["id", "object", "created", "model", "choices", "usage", "metadata"]


def test_usage_comes_in_a_last_frame_or_in_each_as_asked(server: Twin) -> None:
    body: dict[str, Any] = {"prompt": "some words here", "max_tokens": 3, "ignore_eos": True, "stream": True}
    options = {"include_usage": True}
    last = events(server.post("/v1/completions", body | {"stream_options": options}))[-2]
    frame = json.loads(last)
    assert frame["choices"] == []
    assert frame["usage"]["completion_tokens"] == 3
    assert frame["usage"]["total_tokens"] == 3 + frame["usage"]["prompt_tokens"]
    options["continuous_usage_stats"] = True
    told = events(server.post("/v1/completions", body | {"stream_options": options}))[:-1]
    assert [json.loads(t)["usage"]["completion_tokens"] for t in told] == [1, 2, 3, 3]


def test_chat_stream_begins_with_a_role_and_ends_without_content(server: Twin) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "ignore_eos": True}
    whole = server.post("/v1/chat/completions", body).json()
    told = events(server.post("/v1/chat/completions", body | {"stream": True}))
    deltas = [json.loads(t)["choices"][0] for t in told[:-1]]
    assert deltas[0]["delta"] == {"reasoning_content": None, "role": "assistant", "content": ""}
    assert deltas[-1]["delta"] == {"reasoning_content": None}
    assert [d["finish_reason"] for d in deltas] == [None] * 4 + ["length"]
    text = "".join(d["delta"].get("content", "") for d in deltas)
    assert text == whole["choices"][0]["message"]["content"]
    assert told[-1] == "[DONE]"


def test_several_tokens_of_a_verify_step_are_one_event(drafting: Twin) -> None:
    told = events(drafting.generate(60, prompt=[3, 1, 4, 1, 5], stream=True))[:-1]
    counts = [json.loads(t)["meta_info"]["completion_tokens"] for t in told]
    gains = [b - a for a, b in itertools.pairwise(counts)]
    assert counts[-1] == 60
    assert 1 < max(gains) <= 4
    meta = json.loads(told[-1])["meta_info"]
    assert meta["spec_verify_ct"] == len(gains)
    assert meta["spec_accept_length"] == pytest.approx(60 / meta["spec_verify_ct"])
    assert 1.2 < meta["spec_accept_length"] < 4
    # Three drafts a step beside the token that is certain; the first token of all is the prefill's.
    assert meta["spec_num_proposed_drafts"] == 3 * meta["spec_verify_ct"]
    assert meta["spec_num_correct_drafts"] == 59 - meta["spec_verify_ct"]


def test_acceptance_is_told_after_forty_steps_and_forgotten_by_a_flush(drafting: Twin) -> None:
    def state() -> dict[str, Any]:
        return dict(drafting.get("/server_info").json()["internal_states"][0])

    drafting.generate(200)
    first = state()["avg_spec_accept_length"]
    assert 1 < first <= 4
    assert drafting.post("/flush_cache", None).status_code == 200
    assert "avg_spec_accept_length" not in state()


def test_acceptance_over_a_window_is_told_by_two_counters(drafting: Twin) -> None:
    before = counters(drafting)
    metas = [drafting.generate(50, prompt=[i, i + 1]).json()["meta_info"] for i in range(3)]
    after = counters(drafting)
    tokens = after["sglang:generation_tokens_total"] - before["sglang:generation_tokens_total"]
    verified = after["sglang:spec_verify_calls_total"] - before["sglang:spec_verify_calls_total"]
    assert tokens == 150
    assert verified == sum(m["spec_verify_ct"] for m in metas)
    (line,) = (x for x in drafting.get("/metrics").text.splitlines() if x.startswith("sglang:spec_verify_calls_total{"))
    assert "is_streaming" not in line


def test_server_info_says_what_runs_and_that_it_is_simulated(drafting: Twin) -> None:
    info = drafting.get("/server_info").json()
    assert info == drafting.get("/get_server_info").json()
    assert info["simulated"] is True
    assert info["simulated_profile"] == "tiny"
    assert info["version"] == "0.5.23"
    assert info["speculative_num_draft_tokens"] == 4, "8 were asked: a chain has steps + 1"
    assert info["max_running_requests"] == 48
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 48
    assert info["startup_time"]["load_weight"] == pytest.approx(5.0), "simulated seconds, not divided"
    assert info["startup_time"]["cuda_graph"]["draft_decode"] > 0
    assert "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1" in drafting.log
    assert "Max running requests is reset to 48 for speculative decoding." in drafting.log


def test_effective_requests_are_bounded_by_the_pool(tmp_path: Any) -> None:
    with twin(tmp_path, "--max-running-requests", "64", "--max-total-tokens", "60") as server:
        info = server.get("/server_info").json()
        assert info["max_running_requests"] == 64
        assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 30
        assert info["max_total_num_tokens"] == 60


def test_models_by_list_and_by_name(server: Twin) -> None:
    listed = server.get("/v1/models").json()["data"][0]
    assert (listed["id"], listed["owned_by"], listed["max_model_len"]) == ("tiny", "sglang", 4096)
    assert server.get("/v1/models/tiny").json()["id"] == "tiny"
    assert server.get("/v1/models/other").status_code == 404
    assert server.get("/model_info").json()["model_path"] == "example/tiny"
    assert server.get("/get_model_info").json()["simulated"] is True


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/generate", "{", "The body is not JSON"),
        ("/generate", "{}", "Either text, input_ids or input_embeds should be provided."),
        ("/generate", '{"input_ids": [1], "sampling_params": {"max_new_tokens": -1}}', "at least 0"),
        ("/generate", '{"input_ids": [1], "sampling_params": {"temperature": -1}}', "non-negative"),
        ("/generate", '{"input_ids": [99999999]}', "outside the vocabulary"),
        ("/v1/completions", '{"prompt": null}', "Field required"),
        ("/v1/completions", '{"prompt": "a", "max_tokens": "x"}', "valid integer"),
        ("/v1/completions", '{"prompt": "a", "n": 2}', "one choice"),
        ("/v1/chat/completions", '{"messages": []}', "Messages cannot be empty."),
    ],
)
def test_bad_bodies_are_refused_with_an_error_object(server: Twin, path: str, body: str, message: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = requests.post(server.url + path, data=body, headers=headers, timeout=30)
    assert answer.status_code == 400
    error = answer.json().get("error", answer.json())
    assert message in error["message"]
    if path.startswith("/v1/"):
        assert error["object"] == "error"
        assert error["code"] == 400


def test_a_prompt_longer_than_the_context_is_refused(server: Twin) -> None:
    answer = server.generate(1, prompt=[1] * 5000)
    assert answer.status_code == 400
    expected = "The input (5000 tokens) is longer than the model's context length (4096 tokens)."
    assert answer.json()["error"]["message"] == expected
    answer = server.post("/v1/completions", {"prompt": [1] * 4000, "max_tokens": 200, "stream": True})
    assert answer.status_code == 400
    assert "You requested a total of 4200 tokens" in answer.json()["message"]


def test_unknown_paths_and_methods(server: Twin) -> None:
    assert server.get("/nope").json() == {"detail": "Not Found"}
    assert server.get("/nope").status_code == 404
    assert server.get("/generate").status_code == 405


def test_flush_is_refused_with_the_same_text_while_a_request_runs(server: Twin) -> None:
    idle = server.get("/flush_cache")
    with server.generate(3000, stream=True) as stream:
        chunks = stream.iter_content(64)
        next(chunks)
        busy = server.post("/flush_cache", None)
    assert (idle.status_code, busy.status_code) == (200, 400)
    assert busy.text == idle.text
    assert idle.text.startswith("Cache flushed.\nPlease check backend logs for more details.")


def test_a_client_that_goes_away_frees_its_place(server: Twin) -> None:
    stream = server.generate(3500, stream=True)
    chunks = stream.iter_content(64)
    next(chunks)
    assert counters(server)["sglang:num_running_reqs"] == 1
    stream.close()
    wait_until(lambda: counters(server)["sglang:num_running_reqs"] == 0, "the request was aborted")
    assert counters(server)["sglang:kv_used_tokens"] == 0


def test_a_request_is_aborted_by_its_id(server: Twin) -> None:
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(server.generate(3500, rid="mine").json()))
    thread.start()
    wait_until(lambda: counters(server)["sglang:num_running_reqs"] == 1, "the request runs")
    assert server.post("/abort_request", {"rid": "mine"}).status_code == 200
    thread.join(30)
    assert answers[0]["meta_info"]["finish_reason"]["type"] == "abort"
    assert answers[0]["meta_info"]["completion_tokens"] < 3500


def test_counters_tell_requests_by_streaming(server: Twin) -> None:
    before = counters(server)
    server.generate(5)
    server.generate(7, stream=True).text  # noqa: B018
    wait_until(
        lambda: counters(server)["sglang:num_requests_total"] == before["sglang:num_requests_total"] + 2,
        "both requests are counted",
    )
    after = counters(server)
    assert after["sglang:generation_tokens_total"] - before["sglang:generation_tokens_total"] == 12
    assert after["sglang:prompt_tokens_total"] - before["sglang:prompt_tokens_total"] == 6
    text = server.get("/metrics").text
    assert 'sglang:num_requests_total{engine_type="unified",is_streaming="true",model_name="tiny"}' in text


def test_more_users_than_max_running_requests_queue(tmp_path: Any) -> None:
    with twin(tmp_path, "--max-running-requests", "2", "--enable-metrics") as server:
        streams = [server.generate(3000, prompt=[i], stream=True) for i in range(5)]
        wait_until(lambda: counters(server)["sglang:num_queue_reqs"] == 3, "three requests wait")
        assert counters(server)["sglang:num_running_reqs"] == 2
        for stream in streams:
            stream.close()
        wait_until(lambda: counters(server)["sglang:num_queue_reqs"] == 0, "the queue is empty")


def test_an_api_key_is_asked_for_and_told_as_sglang_tells_it(tmp_path: Any) -> None:
    config = tmp_path / "key.yaml"
    config.write_text('{"api-key": "hunter2"}')
    with twin(tmp_path, "--config", str(config), "--enable-metrics", "--served-model-name", "mine") as server:
        assert {server.get(path).status_code for path in ("/health", "/ready", "/metrics")} == {200}
        for path in ("/v1/models", "/model_info", "/server_info"):
            refused = server.get(path)
            assert (refused.status_code, refused.json()) == (401, {"error": "Unauthorized"})
        assert server.generate().status_code == 401
        assert server.post("/flush_cache", {}).status_code == 401
        headers = {"Authorization": "Bearer hunter2"}
        told = requests.get(server.url + "/model_info", headers=headers, timeout=30).json()
        assert told["served_model_name"] == "mine"
        info = requests.get(server.url + "/server_info", headers=headers, timeout=30).json()
        # Whoever stores this has to blot it out, with the real server and with its twin.
        assert info["api_key"] == "hunter2"
        assert info["launch_command"].startswith("--api-key hunter2 --model-path example/tiny")
        assert "'api_key': 'hunter2'" in server.log


def test_metrics_need_their_flag(tmp_path: Any) -> None:
    with twin(tmp_path) as server:
        assert server.get("/metrics").status_code == 404


def test_the_same_seed_gives_the_same_text_and_another_one_does_not(tmp_path: Any) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        with twin(tmp_path, "--random-seed", seed) as server:
            texts.append(server.generate(12).json()["output_ids"])
    assert texts[0] == texts[1] != texts[2]


def test_decode_lines_come_every_interval(tmp_path: Any) -> None:
    with twin(tmp_path, "--decode-log-interval", "5", "--tp-size", "2") as server:
        server.generate(21)
        server.wait_line(" TP0] Decode batch, #running-req: 1, #token: ")
        lines = [line for line in server.log.splitlines() if "Decode batch" in line]
    # 20 decode steps of the request after 7 of the warm-up
    assert len(lines) == 5
    assert "accept len" not in lines[0]
