"""The flags of `sglang serve` 0.5.23 with types, defaults, choices, as its usage and /server_info show.

Every flag is here, also those that change nothing in the simulation: which abbreviations are ambiguous
depends on all of them.
"""

from __future__ import annotations

# In a list of names, `name=default` gives the default.

#: Flags without a value.
SWITCHES = """
skip-tokenizer-init trust-remote-code is-embedding enable-multimodal enable-fp32-lm-head
quantize-and-serve enable-dynamic-chunking enable-priority-scheduling disable-priority-preemption
abort-on-priority-when-disabled schedule-low-priority-values-first disable-hybrid-swa-memory
prefill-only-disable-kv-cache disable-radix-cache enable-page-major-kv-layout enable-unified-memory
disable-chunked-prefix-cache disable-overlap-schedule enable-mixed-chunk enable-prefill-cp
enable-dsa-cache-layer-split enable-cp-decode-attn-tp enable-kv-cache-sharding
enable-dp-attention-local-control-broadcast enable-dp-lm-head enable-attn-tp-input-scattered
enable-shared-experts-attn-tp enable-dense-mlp-attn-tp enable-layernorm-sp disable-attn-tp-gather
enable-p2p-check mlx-enable-sampling sleep-on-idle use-ray smg-grpc-mode grpc-mode skip-server-warmup
enable-http2 enable-ssl-refresh trust-request-chat-template enable-cache-report return-input-ids
return-output-ids strip-thinking-cache enable-strict-thinking allow-auto-truncate
stream-response-default-include-usage incremental-streaming-output enable-streaming-session
enable-session-radix-cache log-requests show-time-cost enable-metrics enable-mfu-metrics
enable-metrics-for-all-schedulers enable-request-time-stats-logging enable-forward-pass-metrics
enable-trace export-metrics-to-file constrained-json-disable-any-whitespace enable-lean-attention
disable-flashinfer-autotune disable-prefill-cuda-graph disable-decode-cuda-graph
disable-cuda-graph-padding enable-profile-cuda-graph enable-cudagraph-gc debug-cuda-graph
enable-layerwise-nvtx-marker enable-nccl-nvls enable-symm-mem triton-attention-reduce-in-fp32
flashinfer-mla-disable-ragged enable-precise-embedding-interpolation enable-fused-moe-sum-all-reduce
enable-deepseek-v4-fp4-indexer disable-custom-all-reduce enable-mscclpp enable-torch-symm-mem
enable-scattered-sconv pre-warm-nccl enable-quant-communications
enforce-disable-flashinfer-allreduce-fusion enable-aiter-allreduce-fusion enable-torch-compile
enable-torch-compile-debug-mode speculative-dspark-align-verify-tokens-to-graph-tier
speculative-use-rejection-sampling enable-multi-layer-eagle speculative-adaptive enable-w4a4-mxfp4-megamoe
enable-eplb enable-elastic-expert-backup enable-waterfill disable-flashinfer-cutlass-moe-fp4-allgather
disable-shared-experts-fusion enforce-shared-experts-fusion enable-mamba-cache-stochastic-rounding
enable-int8-mamba-checkpoint enable-linear-replayssm enable-linear-replayssm-spec
enable-hierarchical-cache enable-unified-cache-external-linker enable-hisparse
enable-broadcast-mm-inputs-process enable-prefix-mm-cache trust-mm-content-hashes enable-mm-global-cache
disable-fast-image-processor enable-lora enable-lora-overlap-loading lora-use-virtual-experts
enable-two-batch-overlap enable-single-batch-overlap enable-lmcache enable-flexkv
disaggregation-decode-enable-radix-cache disaggregation-decode-enable-offload-kvcache encoder-only
language-only language-model-only enable-adaptive-dispatch-to-encoder enable-pdmux
weight-loader-disable-mmap weight-loader-prefetch-checkpoints weight-loader-drop-cache-after-load
remote-instance-weight-loader-start-seed-via-transfer-engine delete-ckpt-after-loading
checkpoint-engine-wait-weights-before-ready enable-prefill-delayer enable-deterministic-inference
enable-dynamic-batch-tokenizer enable-tokenizer-batch-encode disable-tokenizer-batch-decode
enable-memory-saver enable-weights-cpu-backup enable-draft-weights-cpu-backup
enable-custom-logit-processor enable-return-hidden-states enable-return-routed-experts
enable-return-indexer-topk disable-outlines-disk-cache enable-mis disaggregation-enable-kv-checksum
enable-pd-role-switch enable-linker-mla-dedup enable-encoder-swa-bounded-replay enable-response-store
speculative-use-block-verification disable-aiter-allreduce-fusion-in-prefill
disable-aiter-allreduce-fusion-in-decode enable-amd-monokernel enable-watermark enable-paged-experts
enable-nvidia-megakernel enable-megamoe-for-layernorm-sp enable-http-worker-reuseport
enable-return-aux-hidden-states disable-cuda-graph enable-dp-attention enable-flashinfer-allreduce-fusion
"""

#: Flags with a `--no-` counterpart.
OPTIONAL_SWITCHES = """
enable-tf32-matmul dcp-replicate-q-proj enable-tp-lm-head-all-to-all enable-fused-qk-norm-rope
speculative-enable-w4a4-mxfp4-megamoe mm-enable-dp-encoder experts-shared-outer-loras lora-strict-loading
dllm-fdfo=true ple-offload-embedding enable-decoder-swa-bounded-replay enable-dsa-fused-indexer
"""

#: Flags with an integer, and the default where there is one.
INTEGERS = """
tokenizer-worker-num=1 detokenizer-worker-num=1 chunked-prefill-size prefill-decode-interval=0
max-prefill-tokens=16384 priority-scheduling-preemption-threshold=10 page-size=1 c128-page-size=16
num-continuous-decode-steps=1 scheduler-recv-interval=1 nnodes=1 node-rank=0 tp-size=1 dcp-size=1
pp-size=1 pp-async-batch-depth=0 dp-size=1 attn-dp-size=1 attn-cp-size=1 moe-dp-size=1 dwdp-size=1
base-gpu-id=0 gpu-id-step=1 random-seed port http2-max-concurrent-streams=200
http2-initial-connection-window-size=1048576 asr-max-buffer-seconds=60 asr-max-concurrent-sessions=32
stream-interval=1 batch-notify-size=16 load-snapshot-publish-interval=15 decode-log-interval=40
triton-attention-num-kv-splits=8 torch-compile-max-bs=32 speculative-ngram-min-bfs-breadth=1
speculative-ngram-max-bfs-breadth=10 speculative-ngram-max-trie-depth=18
speculative-ngram-capacity=10000000 speculative-ngram-external-sam-budget=0
speculative-ngram-external-corpus-max-tokens=10000000 ep-size=1 ep-num-redundant-experts=0
eplb-rebalance-num-iterations=1000 expert-distribution-recorder-buffer-size=1000
elastic-ep-scale-timeout=600 mamba-max-states-per-path=-1 mamba-cache-philox-rounds=0
mamba-track-interval=256 linear-replayssm-cache-len=16 hicache-size=0
hicache-storage-prefetch-retry-poll-interval=8 hicache-storage-prefetch-retry-max-attempts=8
mm-processor-worker-num=0 mm-io-worker-num=0 media-url-max-file-size-mb=64 max-loras-per-batch=8
cpu-offload-gb=0 offload-group-size=-1 offload-num-in-group=1 offload-prefetch-step=1
kt-threadpool-count=2 disaggregation-bootstrap-port=8998 num-reserved-decode-tokens=512
disaggregation-decode-polling-interval=1 optimistic-prefill-attempts=0 encoder-bootstrap-port=8997
sm-group-num=8 weight-loader-prefetch-num-threads=4 engine-info-bootstrap-port=6789
prefill-delayer-max-delay-passes=30 kv-canary-sweep-interval=0 dynamic-batch-tokenizer-batch-size=32
sampling-mask-max-tokens=4096 weight-cache-timeout=1800 speculative-domino-candidate-pool-size=2048
grpc-response-timeout-secs=300 prefill-decode-interval-min-bs=0 context-length max-running-requests
max-queued-requests max-total-tokens prefill-max-requests default-priority-value nccl-port dist-timeout
gated-launch-port pp-max-micro-batch-size shared-experts-tp-size grpc-port smg-http-sidecar-port
constrained-json-max-whitespace-cnt cuda-graph-max-bs-decode cuda-graph-max-bs-prefill
cuda-graph-prefill-max-context triton-attention-split-tile-size speculative-num-steps
speculative-eagle-topk speculative-num-draft-tokens speculative-dflash-block-size
speculative-dspark-block-size speculative-draft-window-size decoupled-spec-rank
eplb-rebalance-layers-per-chunk moe-dense-tp-size elastic-ep-join-rank-offset elastic-ep-initial-size
max-ep-size max-mamba-cache-size int8-mamba-ckpt-size mm-preprocess-cache-size-mb max-lora-rank
max-loaded-loras kt-cpuinfer kt-num-gpu-experts kt-max-deferred-experts-per-token
disaggregation-decode-extra-slots cuda-graph-max-seq-len-prefill speculative-draft-sink-size
paged-experts-num-resident min-free-slots-delay
"""

#: Flags with a real number.
FLOATS = """
mem-fraction-static schedule-conservativeness=1.0 swa-full-tokens-ratio=0.8 gc-warning-threshold-secs=0.0
speculative-accept-threshold-single=1.0 speculative-accept-threshold-acc=1.0
eplb-min-rebalancing-utilization-threshold=1.0 mamba-full-memory-ratio=0.9 hicache-ratio=2.0
lora-drain-wait-threshold=0.0 tbo-token-distribution-threshold=0.48
dynamic-batch-tokenizer-batch-timeout=0.002 hicache-host-memory-fraction=0.8
disaggregation-decode-host-receive-threshold=1.0 soft-watchdog-timeout
prefill-delayer-token-usage-low-watermark prefill-delayer-queue-min-ratio prefill-delayer-max-delay-ms
watchdog-timeout=300
"""

#: Flags with any text.
TEXTS = """
model-path tokenizer-path model-loader-extra-config={} revision model-impl=auto model-config-parser=auto
json-model-override-args={} quantization-param-path modelopt-quant modelopt-checkpoint-restore-path
modelopt-checkpoint-save-path modelopt-export-path rl-quant-profile radix-eviction-policy-config
dist-init-addr device host fastapi-root-path sidecar sidecar-args warmups ssl-keyfile ssl-certfile
ssl-ca-certs ssl-keyfile-password api-key admin-api-key served-model-name weight-version=default
chat-template hf-chat-template-name completion-template file-storage-path default-chat-template-kwargs
tool-server preferred-sampling-params log-level=info log-level-http crash-dump-folder
tokenizer-metrics-custom-labels-header=x-custom-labels extra-metric-labels kv-events-config
load-publish-endpoint trace-modules=request otlp-traces-endpoint=localhost:4317 export-metrics-to-file-dir
constrained-json-whitespace-pattern radix-cache-backend cuda-graph-config speculative-algorithm
uno-lora-path speculative-draft-model-path speculative-draft-model-revision
speculative-dspark-sps-table-path speculative-dspark-confidence-sts-path speculative-token-map
speculative-draft-attention-backend speculative-adaptive-config decoupled-spec-bind-endpoint
decoupled-spec-connect-endpoints spec-trace-dir speculative-ngram-external-corpus-path
init-expert-location=trivial eplb-algorithm=auto deepep-config mooncake-ib-device
hicache-storage-backend-extra-config hisparse-config mm-process-config={} limit-mm-data-per-request
offload-mode=cpu lmcache-config-file flexkv-config-file kt-weight-path kt-method=AMXINT4 dllm-algorithm
dllm-algorithm-config disaggregation-ib-device pdmux-config-path
remote-instance-weight-loader-seed-instance-ip remote-instance-weight-loader-seed-instance-service-port
remote-instance-weight-loader-send-weights-group-ports modelexpress-config download-dir
decrypted-config-file decrypted-draft-config-file debug-tensor-dump-output-folder
debug-tensor-dump-input-file weight-cache-socket forward-hooks msprobe-dump-config ple-offload-dir
otlp-service-name swa-prefix-tails watermark-config unified-cache-external-linker-config config
reasoning-parser tool-call-parser
"""

#: Flags with one or more words.
ONE_OR_MORE = """
numa-node gc-threshold log-requests-target tokenizer-metrics-allowed-custom-labels
bucket-time-to-first-token bucket-inter-token-latency bucket-e2e-request-latency prompt-tokens-buckets
generation-tokens-buckets flashinfer-autotune-skip-ops cuda-graph-bs-decode cuda-graph-bs-prefill
allowed-media-domains encoder-urls encoder-register-urls prefill-delayer-forward-passes-buckets
prefill-delayer-wait-seconds-buckets debug-tensor-dump-layers return-aux-hidden-state-layer-ids
"""

#: Flags with any number of words.
ANY_NUMBER = """
uvicorn-access-log-exclude-prefixes lora-target-modules lora-paths custom-weight-loader
"""

#: Flags with one word or none.
AT_MOST_ONE = "model-checksum"

#: Flags with a choice of words: the words, then the flags (with their defaults) that take them.
CHOICES: dict[str, str] = {
    "auto slow": "tokenizer-mode=auto",
    "huggingface fastokens": "tokenizer-backend=huggingface",
    (
        "auto pt safetensors instanttensor npcache dummy sharded_state presharded gguf expert_pack "
        "bitsandbytes mistral layered flash_rl remote remote_instance fastsafetensors private runai_streamer"
    ): ("load-format=auto speculative-draft-load-format"),
    "auto half float16 bfloat16 float float32": "dtype=auto",
    (
        "awq fp8 mxfp8 gptq gptq_marlin awq_marlin bitsandbytes gguf modelopt modelopt_fp8 modelopt_fp4 "
        "nvfp4_online modelopt_mixed petit_nvfp4 w8a8_int8 w8a8_fp8 moe_wna16 w4afp8 mxfp4 auto-round "
        "auto-round-int8 compressed-tensors modelslim mxfp_w4a8 quark quark_int4fp8_moe quark_mxfp4 mlx_q4 "
        "mlx_q8 unquant humming"
    ): ("quantization speculative-draft-model-quantization"),
    "auto fp8_e5m2 fp8_e4m3 mxfp8 bf16 bfloat16 nvfp4 fp4_mx_block16": "kv-cache-dtype=auto",
    ("lpm random fcfs dfs-weight lof priority routing-key hrrn shortest-prefill-first"): ("schedule-policy=fcfs"),
    "length priority": "retraction-policy=length",
    "lru lfu slru priority tlru": "radix-eviction-policy=lru",
    ("auto round_robin follow_bootstrap_room total_requests total_tokens"): ("load-balance-method=round_robin"),
    "ag_rs a2a fi_a2a": "dcp-comm-backend=ag_rs",
    "zigzag interleave": "cp-strategy",
    "openai model": "sampling-defaults=model",
    "0 1 2 3": "log-requests-level=2",
    "text json": "log-requests-format=text",
    (
        "triton torch_native flex_attention dsa nsa qsa dsv4 compressed fa3 fa4 flashinfer "
        "llada2_cfg_flashinfer flashmla trtllm_mla cutedsl_mla tokenspeed_mla trtllm_mha hpc_ops "
        "minicpm_flashattn minicpm_flashinfer aiter wave intel_amx ascend intel_xpu"
    ): ("attention-backend decode-attention-backend prefill-attention-backend"),
    "xgrammar outlines llguidance none": "grammar-backend=xgrammar",
    ("sdpa fa3 fa4 triton_attn ascend_attn aiter_attn flashinfer_cudnn amx_attn xpu_attn"): ("mm-attention-backend"),
    (
        "auto deep_gemm flashinfer_trtllm flashinfer_cutlass flashinfer_deepgemm flashinfer_cutedsl cutlass "
        "triton aiter"
    ): ("fp8-gemm-backend"),
    ("auto flashinfer_cudnn flashinfer_cutedsl flashinfer_cutlass flashinfer_trtllm marlin"): ("fp4-gemm-backend"),
    "auto cutedsl gemv torch": "bf16-gemm-backend=auto",
    (
        "flashmla_sparse flashmla_sparse_q8 flashmla_kv flashmla_auto flashinfer_sparse_mla "
        "triton_sparse_mla fa3 tilelang triton aiter trtllm intel_xpu"
    ): ("dsa-prefill-backend"),
    "auto flashmla_sparse flashmla_sparse_q8": "dsv4-prefill-backend=auto",
    (
        "flashmla_sparse flashmla_sparse_q8 flashmla_kv flashmla_auto flashinfer_sparse_mla fa3 tilelang "
        "triton aiter trtllm intel_xpu"
    ): ("dsa-decode-backend"),
    "auto deepgemm cutedsl aiter": "dsa-paged-mqa-logits-backend=auto",
    "sgl-kernel torch flashinfer": "dsa-topk-backend=sgl-kernel speculative-dsa-topk-backend=sgl-kernel",
    "triton flashinfer": "mamba-backend=triton",
    "full breakable disabled": "cuda-graph-backend-decode cuda-graph-backend-prefill",
    "auto ar rs rsv rs+rsv": "boundary-reduction=rs+rsv",
    "auto trtllm mnnvl cutedsl": "flashinfer-allreduce-fusion-backend",
    "prefill decode": "speculative-attention-mode=prefill",
    "auto fp8_e5m2 fp8_e4m3 bf16 bfloat16": "speculative-draft-kv-cache-dtype",
    (
        "auto deep_gemm triton triton_kernel flashinfer_trtllm experimental_sgl_trtllm "
        "flashinfer_trtllm_routed flashinfer_cutlass flashinfer_mxfp4 flashinfer_cutedsl flashinfer_megamoe "
        "cutlass aiter marlin humming experimental_sgl_marlin lora_cutedsl lora_triton lora_marlin hpc_ops "
        "megamoe intel_xpu"
    ): ("speculative-moe-runner-backend=auto moe-runner-backend=auto"),
    ("none deepep mooncake nixl mori ascend_fuseep flashinfer megamoe deepep_v2 pplx ascend_tp"): (
        "speculative-moe-a2a-backend"
    ),
    "null verifier drafter": "decoupled-spec-role=null",
    "BFS PROB": "speculative-ngram-match-type=BFS",
    ("none deepep mooncake nixl mori ascend_fuseep flashinfer megamoe deepep_v2 pplx ascend_tp flashinfer_megamoe"): (
        "moe-a2a-backend=none"
    ),
    "direct hybrid": "deepep-v2-mode=direct",
    "default bf16 fp8": "flashinfer-mxfp4-moe-precision=default",
    "auto normal low_latency": "deepep-mode=auto",
    "1 2": "fuseep-mode=2",
    "auto bf16 fp8 int8 nvfp4": "deepep-dispatcher-output-dtype=auto",
    "static dynamic fake lp": "ep-dispatch-algorithm",
    "stat stat_approx per_pass per_token": "expert-distribution-recorder-mode",
    "off server_log prometheus both": "expert-balancedness-report-mode=off",
    "none mooncake nixl": "elastic-ep-backend",
    "scale recover": "elastic-ep-join-mode",
    "float32 bfloat16 float16": "mamba-ssm-dtype",
    "auto no_buffer extra_buffer extra_buffer_lazy": "mamba-radix-cache-strategy=auto",
    ("triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion intel_xpu"): (
        "linear-attn-backend=triton linear-attn-decode-backend linear-attn-prefill-backend"
    ),
    ("triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion intel_xpu nv_cutedsl"): (
        "linear-attn-verify-backend"
    ),
    "cache buffer_only": "hicache-host-memory-mode=cache",
    "write_back write_through write_through_selective": "hicache-write-policy=write_through",
    "direct kernel kernel_ascend": "hicache-io-backend=kernel",
    ("layer_first page_first page_first_direct page_first_kv_split page_head"): ("hicache-mem-layout=page_first"),
    ("file sim mooncake npu_memcache hf3fs nixl aibrix dynamic eic simm mori shm tensorcast seaweedfs"): (
        "hicache-storage-backend"
    ),
    "best_effort wait_complete timeout": "hicache-storage-prefetch-policy=timeout",
    "mooncake mori dynamic": "unified-cache-external-linker-backend=mooncake",
    "auto torchvision pil": "image-processor-backend=auto",
    "mooncake": "mm-global-cache-backend=mooncake",
    "cpu cuda_ipc cuda_vmm": "mm-feature-transport=cpu",
    "lru fifo": "lora-eviction-policy=lru",
    "triton csgmv ascend torch_native triton_v2": "lora-backend=csgmv",
    "16 32 64 128": "max-lora-chunk-size=16",
    "null prefill decode": "disaggregation-mode=null",
    "mooncake nixl ascend fake mori mooncake_tcp": "disaggregation-transfer-backend=mooncake",
    "cpu_tensor host_pool none": "disaggregation-decode-retraction-backup",
    "auto zmq_to_scheduler zmq_to_tokenizer mooncake": "encoder-transfer-backend=zmq_to_scheduler",
    "serial overlap": "startup-weight-load-mode=serial",
    "transfer_engine nccl modelexpress": "remote-instance-weight-loader-backend=nccl",
    "fsdp": "rl-on-policy-target",
    "none log raise": "kv-canary=none",
    "last full": "return-hidden-states-mode",
    "off daemon client": "weight-cache-mode=off",
    "pinned file": "ple-offload-backend=pinned",
    "auto bf16 nvfp4 mxfp8": "flashinfer-a2a-dispatch-type",
    "auto nvfp4 fp8_e4m3": "prefill-kv-cache-dequant-dtype=auto",
    "auto flashmla flashmla_mega trtllm": "dsv4-attn-backend=auto",
    "auto bfloat16 fp8_e4m3": "qsa-indexer-dtype=auto",
    "early prefill_complete": "disaggregation-decode-allocation-policy=early",
    "0 2 4": "dsa-triton-union=0",
    "flashinfer ascend pytorch intel_xpu": "sampling-backend",
    "none partial all": "kv-canary-real-data=none",
    "amd": "monokernel-backend",
}
