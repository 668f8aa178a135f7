"""A sweep at one instant, for the tests of what shows it."""

from __future__ import annotations

from orchestrator.report.snapshot import FindingView, FrontView, NodeView, ResultsView, Score, Snapshot

RATE, TTFT = "output_tokens_per_s@128", "ttft_ms.p99@32"
NODE = NodeView(
    node="vm/3fa2c1",
    trial=4,
    role="candidate",
    settings="max-running-requests=128 NCCL_PROTO=LL",
    phase="measuring",
    level="C=32",
    requests_done=41,
    requests_planned=96,
    output_tokens_per_s=1204.4,
    half_width=0.031,
)
RESULTS = ResultsView(
    score=Score(RATE, baseline=2370.0, best=2431.0, best_trial=2, gain=2431.0 / 2370.0 - 1),
    objectives=(RATE, TTFT),
    front=(
        FrontView(2, "candidate", "max-running-requests=48", {RATE: 2431.0, TTFT: 812.5}),
        FrontView(0, "baseline", "the server's defaults", {RATE: 2370.0, TTFT: 640.0}),
    ),
    findings=(
        FindingView("beats_baseline", "At C=128 trial 2 gives 2,431 tok/s, +2.6 % on the baseline's 2,370."),
        FindingView("admission_limited", "Admission limited: concurrency 128 over 48 (trial 2).", new=True),
    ),
)
SNAPSHOT = Snapshot(
    study="nccl",
    simulated=True,
    done=3,
    planned=16,
    elapsed_s=130.0,
    left_s=680.0,
    node_hours=0.04,
    node_hours_left=0.19,
    results=RESULTS,
    nodes=(NODE,),
)
