"""The native API's answers, /generate: every event repeats the whole text so far."""

from __future__ import annotations

import json
from typing import Any

from launchers.simulated.request import Finish, Request
from launchers.simulated.tokens import token_bytes
from launchers.simulated.wire import DONE, Head, Wire, text_of


class NativeWire(Wire):
    """/generate. Every event repeats the whole text and all ids so far, unless `incremental`."""

    def __init__(self, head: Head, incremental: bool = False) -> None:
        super().__init__(head)
        self._incremental = incremental
        self._text = b""
        self._ids = b""
        self._written = 0
        self._meta = b""
        self._after = b""

    def grown(self, request: Request, gained: int) -> bytes:
        """One event, however many tokens."""
        output = request.output_ids
        fresh = output[self._written :]
        text = token_bytes(fresh[0]) if len(fresh) == 1 else text_of(fresh)
        ids = b"%d" % fresh[0] if len(fresh) == 1 else b",".join([b"%d" % t for t in fresh])
        if self._incremental:
            self._text, self._ids = text, ids
        else:
            self._text += text
            self._ids = self._ids + b"," + ids if self._ids and ids else self._ids + ids
        first = self._written == 0
        self._written = len(output)
        if request.finish is not None:
            meta = json.dumps(native_meta(self.head, request), separators=(",", ":")).encode()
            return b'data: {"text":"%b","output_ids":[%b],"meta_info":%b}\n\n' % (self._text, self._ids, meta)
        if first:
            self._freeze(request)
        return b'data: {"text":"%b","output_ids":[%b],"meta_info":%b%d%b' % (
            self._text,
            self._ids,
            self._meta,
            len(output),
            self._after,
        )

    def _freeze(self, request: Request) -> None:
        """The parts of meta_info that do not change from event to event, around completion_tokens."""
        meta = json.dumps(_running_meta(self.head, request), separators=(",", ":"))
        before, _, after = meta.partition('"completion_tokens":0')
        self._meta = before.encode() + b'"completion_tokens":'
        self._after = after.encode() + b"}\n\n"

    def end(self, request: Request) -> bytes:
        """`[DONE]`."""
        return DONE

    def body(self, request: Request) -> dict[str, Any]:
        """Recorded shape of /generate."""
        return {
            "text": text_of(request.output_ids).decode(),
            "output_ids": request.output_ids,
            "meta_info": native_meta(self.head, request),
        }


def _running_meta(head: Head, request: Request) -> dict[str, Any]:
    cached = request.cached_tokens or 0
    forward = request.forward_s if request.forward_s is not None else request.arrived_s
    first = request.first_token_s if request.first_token_s is not None else forward
    return {
        "id": head.rid,
        "finish_reason": None,
        "prompt_tokens": len(request.input_ids),
        "weight_version": "default",
        "num_retractions": request.retractions,
        "storage_prefetch_wait": 0.0,
        "storage_staging_wait": 0.0,
        "forward_entry_time": forward + head.epoch_offset_s,
        "prefill_finished_time": first + head.epoch_offset_s,
        "queue_time": forward - request.arrived_s,
        "reasoning_tokens": 0,
        "completion_tokens": 0,
        "cached_tokens": cached,
        "cached_tokens_details": {"device": cached, "host": 0} if cached else None,
        "dp_rank": None,
    }


def native_meta(head: Head, request: Request) -> dict[str, Any]:
    """meta_info of a finished request; the spec_ keys only where verify steps were made."""
    meta = _running_meta(head, request)
    output = len(request.output_ids)
    finished = request.finished_s if request.finished_s is not None else request.arrived_s
    first = request.first_token_s
    meta["finish_reason"] = _native_finish(request)
    meta["completion_tokens"] = output
    meta["weight_versions"] = [{"version": "default", "start": 0, "end": output}]
    meta["e2e_latency"] = finished - request.arrived_s
    meta["request_received_ts"] = request.arrived_s + head.epoch_offset_s
    meta["request_finished_ts"] = finished + head.epoch_offset_s
    if first is not None:
        meta["first_token_latency"] = first - request.arrived_s
        if finished > first:
            meta["decode_throughput"] = (output - 1) / (finished - first)
    if request.verify_steps and head.proposed_drafts:
        drafted = request.verify_steps * head.proposed_drafts
        # the prefill gives the first token, outside any verify step; accepted drafts exclude bonus tokens
        accepted = max(0, output - 1 - request.verify_steps)
        meta["spec_accept_rate"] = accepted / drafted
        meta["spec_accept_length"] = output / request.verify_steps
        meta["spec_num_correct_drafts"] = accepted
        meta["spec_num_proposed_drafts"] = drafted
        meta["spec_verify_ct"] = request.verify_steps
    return meta


def _native_finish(request: Request) -> dict[str, Any]:
    if request.finish is Finish.LENGTH:
        return {"type": "length", "length": len(request.output_ids)}
    if request.finish is Finish.STOP:
        return {"type": "stop", "matched": request.output_ids[-1]}
    return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
