"""Which packages a CPU environment of SGLang 0.5.23 gets, and what pip's complaints mean."""

from __future__ import annotations

import re

TORCH = "torch==2.13.0"
#: The CPU build by name: plain `torch==2.13.0` on PyPI is the CUDA build, with gigabytes of NVIDIA libraries.
TORCH_CPU = f"{TORCH}+cpu"
#: Where PyTorch publishes its CPU builds.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

#: What sglang 0.5.23's metadata asks for, less what holds CUDA code or serves models that the CPU engine cannot run.
#: It asks for torch 2.14.1, and runs on 2.13.0.
REQUIREMENTS = (
    "aiohttp",
    "anthropic>=0.20.0",
    "apache-tvm-ffi==0.1.11",
    "blobfile==3.0.0",
    "compressed-tensors==0.18.0",
    "datasets",
    "distro",
    "easydict",
    "einops",
    "fastapi",
    "gguf",
    "interegular",
    "IPython",
    "llguidance>=1.7.6,<2.0.0",
    "mistral_common>=1.11.5",
    "modelscope",
    "msgspec",
    "ninja",
    "numba==0.65.1",
    "numpy",
    "nvidia-ml-py",
    "openai==2.8.0",
    "openai-harmony==0.0.4",
    "orjson",
    "outlines==0.1.11",
    "packaging",
    "partial_json_parser",
    "pillow",
    "prometheus-client>=0.20.0",
    "psutil",
    "py-spy",
    "pybase64",
    "pydantic",
    "python-dateutil<3",
    "python-multipart",
    "pyzmq>=25.1.2",
    "regex",
    "requests",
    "scipy",
    "sentencepiece==0.2.1",
    "setproctitle",
    "soundfile==0.13.1",
    "tiktoken",
    "tokenizers==0.23.2",
    "tqdm",
    "transformers==5.19.0",
    "uvicorn>=0.51",
    "uvloop",
    "watchfiles",
    "xgrammar==0.2.7",
    "xxhash",
    "zstandard",
)
#: Without what they ask for: sglang wants CUDA packages, torchvision the torch of its own CUDA build.
WITHOUT_DEPENDENCIES = ("sglang==0.5.23", "torchvision==0.28.0")

_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_NO_ANSWER = re.compile(
    r"Retrying \(Retry|NewConnectionError|Connection (?:refused|reset|broken)|Read timed out|ProxyError"
    r"|name resolution|Network is unreachable|CERTIFICATE_VERIFY_FAILED"
)
_NOT_FOUND = re.compile(r"No matching distribution found for (\S+)")
_REASON_LINES = 5


def not_found(output: str) -> bool:
    """Whether pip reached every index it was given, and none had what was asked for."""
    return _NOT_FOUND.search(output) is not None and _NO_ANSWER.search(output) is None


def explain(output: str) -> str:
    """What pip's output says went wrong, and what to do; its last lines where no rule knows it."""
    if _NO_SPACE.search(output):
        return "the disk is full: make room (4 GB are needed, and 1 GB for pip's cache) and run this again"
    if _NO_ANSWER.search(output):
        return (
            "a package index does not answer: check the network, and the proxy and the index of `pip config list`, "
            "and run this again"
        )
    missing = _NOT_FOUND.search(output)
    if missing:
        return f"no index that pip asks has {missing.group(1)} for this Python and machine: see `pip config list`"
    return "pip failed:\n" + "\n".join(output.strip().splitlines()[-_REASON_LINES:])
