"""Replies as they go over the wire: OpenAI's bodies with vLLM's additions."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.modelserver.replies import ChatReply

TOKEN = re.compile(r"[^\W\d_]{1,4}|\d|\s{1,4}|[^\w\s]|_")
FLOOR = 1e-6


def dumped(value: Any) -> bytes:
    """JSON as bytes; half surrogates, which UTF-8 cannot hold, are escaped."""
    try:
        return json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value).encode("ascii")


def error(status: int, message: str, kind: str = "BadRequestError") -> dict[str, Any]:
    """The body of a refusal."""
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def pieces(reply: ChatReply) -> list[str]:
    """The reply's content in the pieces in which it is streamed; a chosen option is one token."""
    return [reply.content] if reply.content in reply.options else TOKEN.findall(reply.content)


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """The token counts of one exchange."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, "prompt_tokens_details": None}


def _alternatives(token: str, reply: ChatReply) -> dict[str, float]:
    """Probabilities at one token: as the script says, else 0.9 for the token and the rest among what could stand there instead."""
    if token in reply.token_p:
        return dict(reply.token_p)
    others: Sequence[str] = ()
    if token in reply.options:
        others = reply.options
    elif token.isdigit():
        others = "0123456789"
    elif token in ("Y", "N"):
        others = "YN"
    rest = [other for other in others if other != token]
    return {token: 0.9, **{other: 0.1 / len(rest) for other in rest}}


def _entry(token: str, probability: float) -> dict[str, Any]:
    return {"token": token, "logprob": math.log(max(probability, FLOOR)), "bytes": list(token.encode("utf-8", "surrogatepass"))}


def token_logprobs(token: str, reply: ChatReply, body: Mapping[str, Any]) -> dict[str, Any]:
    """The log-probability entry of one token, with as many alternatives as the request asks for, and those it asks for by id."""
    likely = _alternatives(token, reply)
    by_id = {chr(number): likely.get(chr(number), FLOOR) for number in body.get("logprob_token_ids") or []}
    top = dict(sorted(likely.items(), key=lambda item: -item[1])[: int(body.get("top_logprobs") or 0)])
    return {**_entry(token, likely[token]), "top_logprobs": [_entry(*item) for item in (top | by_id).items()]}


def completion(reply: ChatReply, body: Mapping[str, Any], head: Mapping[str, Any], sizes: tuple[int, int]) -> dict[str, Any]:
    """A whole chat completion; `head` has id, created and model, `sizes` the tokens of prompt and reply."""
    message = reply.message or {"role": "assistant", "content": reply.content}
    if reply.reasoning:
        message = {**message, "reasoning": reply.reasoning, "reasoning_content": reply.reasoning}
    logprobs = {"content": [token_logprobs(token, reply, body) for token in pieces(reply)]} if body.get("logprobs") else None
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": reply.finish_reason, "stop_reason": None}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage(*sizes)}


def text_completion(reply: ChatReply, head: Mapping[str, Any], sizes: tuple[int, int]) -> dict[str, Any]:
    """A completion of the older kind."""
    choice = {"index": 0, "text": reply.content, "logprobs": None, "finish_reason": reply.finish_reason}
    return {**head, "object": "text_completion", "choices": [choice], "usage": usage(*sizes)}


def _event(head: Mapping[str, Any], choices: list[dict[str, Any]], counts: Mapping[str, Any] | None = None) -> bytes:
    value = {**head, "object": "chat.completion.chunk", "choices": choices} | ({"usage": counts} if counts else {})
    return b"data: " + dumped(value) + b"\n\n"


def events(reply: ChatReply, body: Mapping[str, Any], head: Mapping[str, Any], sizes: tuple[int, int]) -> Iterator[tuple[float, bytes]]:
    """A streamed chat completion: each event with the share of the reply, from 0 to 1, that it completes."""

    options = body.get("stream_options") or {}
    sent = 0

    def delta(part: dict[str, Any], token: str | None = None, reason: str | None = None) -> bytes:
        logprobs = {"content": [token_logprobs(token, reply, body)]} if token is not None and body.get("logprobs") else None
        so_far = usage(sizes[0], math.ceil(sizes[1] * sent / max(1, len(reply.content)))) if options.get("continuous_usage_stats") else None
        return _event(head, [{"index": 0, "delta": part, "logprobs": logprobs, "finish_reason": reason}], so_far)

    yield 0.0, delta({"role": "assistant", "content": ""})
    if reply.reasoning:
        yield 0.0, delta({"reasoning": reply.reasoning, "reasoning_content": reply.reasoning})
    if reply.message is not None:
        yield 1.0, delta(reply.message)
    else:
        for token in pieces(reply):
            sent += len(token)
            yield sent / len(reply.content), delta({"content": token}, token)
    yield 1.0, delta({}, reason=reply.finish_reason)
    if options.get("include_usage"):
        yield 1.0, _event(head, [], usage(*sizes))
    yield 1.0, b"data: [DONE]\n\n"


def metrics(model: str, running: int, waiting: int) -> bytes:
    """The lines of the metrics page that say how busy the server is."""
    label = f'{{engine="0",model_name="{model}"}}'
    lines = []
    for name, number in (("running", running), ("waiting", waiting)):
        full = f"vllm:num_requests_{name}"
        lines += [f"# HELP {full} Number of requests {name}.", f"# TYPE {full} gauge", f"{full}{label} {float(number)}"]
    return ("\n".join(lines) + "\n").encode("ascii")
