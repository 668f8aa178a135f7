import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchestrator.benchmark.counters import delta, flush_cache, parse_metrics, scrape

RECORDED = Path(__file__).parent / "samples" / "metrics.txt"
#: What SGLang 0.5.23 says whether it flushed or not.
FLUSH_TEXT = b"Cache flushed.\nPlease check backend logs for more details."


@contextmanager
def server(*answers: tuple[int, bytes]) -> Iterator[tuple[str, list[tuple[str, str, str | None]]]]:
    """Gives the answers in turn, the last one for ever; yields its URL and the requests it got."""
    seen: list[tuple[str, str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers[min(len(seen), len(answers) - 1)]
            seen.append((self.command, self.path, self.headers.get("Authorization")))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}", seen
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def closed_url() -> str:
    with server((200, b"")) as (url, _):
        return url


def samples(prefix: str, tokens: tuple[float, float], throughput: float = 812.3) -> str:
    return (
        f"# TYPE {prefix}generation_tokens_total counter\n"
        f'{prefix}generation_tokens_total{{dp_rank="0"}} {tokens[0]}\n'
        f'{prefix}generation_tokens_total{{dp_rank="1"}} {tokens[1]}\n'
        f"# TYPE {prefix}gen_throughput gauge\n"
        f'{prefix}gen_throughput{{dp_rank="0"}} {throughput}\n'
    )


@pytest.mark.parametrize("prefix", ["sglang:", "sglang_"])
def test_counters_are_summed_over_ranks_with_either_prefix(prefix: str) -> None:
    before = parse_metrics(samples(prefix, (2000, 3000)))
    after = parse_metrics(samples(prefix, (6000, 7000)))
    assert delta(before, after, "generation_tokens_total") == 8000


def test_an_idle_server_has_counted_nothing_whatever_its_stale_gauge_says() -> None:
    idle = parse_metrics(samples("sglang:", (2000, 3000)))
    assert delta(idle, idle, "generation_tokens_total") == 0
    assert idle["gen_throughput"] == 812.3


def test_a_counter_that_fell_or_is_missing_gives_no_difference() -> None:
    before = parse_metrics(samples("sglang:", (6000, 7000)))
    restarted = parse_metrics(samples("sglang:", (40, 0)))
    assert delta(before, restarted, "generation_tokens_total") is None
    assert delta(before, {}, "generation_tokens_total") is None
    assert delta({}, before, "generation_tokens_total") is None
    assert delta(before, restarted, "no_such_counter") is None


def test_a_counter_that_appears_began_at_zero() -> None:
    assert delta({"a_total": 1.0}, {"a_total": 1.0, "spec_verify_calls_total": 7.0}, "spec_verify_calls_total") == 7


def test_recorded_metrics_are_read() -> None:
    values = parse_metrics(RECORDED.read_text())
    assert values["generation_tokens_total"] == 16
    assert values["prompt_tokens_total"] == 31
    assert values["process_cpu_seconds_total"] == pytest.approx(0.31)
    assert values["time_to_first_token_seconds_count"] == 2
    assert values["time_to_first_token_seconds_sum"] == pytest.approx(0.1075, abs=1e-4)
    assert values["http_requests_total"] == 25
    assert values["num_running_reqs"] == 0
    # It was NaN.
    assert "fwd_occupancy" not in values
    assert not [name for name in values if name.endswith("_bucket")]


def test_gauges_of_several_ranks_add_up_only_where_they_count_things() -> None:
    text = "".join(
        f'# TYPE sglang:{name} gauge\nsglang:{name}{{dp_rank="0"}} {a}\nsglang:{name}{{dp_rank="1"}} {b}\n'
        for name, a, b in [("num_running_reqs", 3, 4), ("token_usage", 0.25, 0.5)]
    )
    assert parse_metrics(text) == {"num_running_reqs": 7, "token_usage": 0.5}


def test_metrics_of_others_are_left_out() -> None:
    assert parse_metrics("python_info 1\nprocess_cpu_seconds_total 3\n") == {}


def test_scraping_reads_the_servers_metrics() -> None:
    with server((200, RECORDED.read_bytes())) as (url, seen):
        assert scrape(url + "/", api_key="k")["generation_tokens_total"] == 16
    assert seen == [("GET", "/metrics", "Bearer k")]


@pytest.mark.parametrize("answer", [(404, b"Not Found"), (500, b""), (200, b"<html> no metrics {</html>")])
def test_a_server_without_metrics_gives_none(answer: tuple[int, bytes]) -> None:
    with server(answer) as (url, _):
        assert scrape(url) == {}


def test_a_server_that_is_gone_gives_no_metrics_and_an_unknown_cache() -> None:
    url = closed_url()
    assert scrape(url) == {}
    assert flush_cache(url) == "unknown"


def test_a_flush_is_confirmed_by_its_status() -> None:
    with server((200, FLUSH_TEXT)) as (url, seen):
        assert flush_cache(url) == "flushed"
    assert seen == [("POST", "/flush_cache", None)]


def test_a_busy_server_is_asked_again_until_it_has_flushed() -> None:
    pauses: list[float] = []
    with server((400, FLUSH_TEXT), (400, FLUSH_TEXT), (200, FLUSH_TEXT)) as (url, seen):
        assert flush_cache(url, sleep=pauses.append, poll_s=0.5) == "flushed"
    assert len(seen) == 3
    assert pauses == [0.5, 0.5]


def test_a_server_that_stays_busy_leaves_the_cache_unknown_at_the_deadline() -> None:
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    with server((400, FLUSH_TEXT)) as (url, seen):
        assert flush_cache(url, deadline_s=3, poll_s=1, clock=lambda: now_s, sleep=sleep) == "unknown"
    assert len(seen) == 4


def test_a_server_that_cannot_flush_leaves_the_cache_unknown() -> None:
    with server((404, b"")) as (url, seen):
        assert flush_cache(url) == "unknown"
    assert len(seen) == 1
