"""Through the door: the bytes of a request become a checked, tokenised job, or an error that names what is wrong.

Runs in the worker threads of the pool: neither the event loop nor the executor waits for it.
"""

import time
import uuid
from dataclasses import replace
from typing import Any

import orjson
from msgspec import UNSET

from ..sampler.keys import fresh_seed
from ..tokenizer.errors import TemplateError
from ..tokenizer.grammar import GrammarError
from ..tokenizer.matcher import Guide, guide
from . import features, validate
from .errors import BadRequest, ContextExceeded
from .job import Ids, Job, Wishes
from .messages import check_messages, check_tools
from .prompts import read_prompts
from .schemas import Body, ChatBody, CompletionBody, given
from .served import Served

DEPTH = 100  # of nested arrays and objects; real tool schemas stay under 20
_CHAT_FIELDS = frozenset(ChatBody.__struct_fields__)
_COMPLETION_FIELDS = frozenset(CompletionBody.__struct_fields__)


def open_chat(raw: bytes, served: Served) -> Job:
    """Raises ApiError."""
    body = _parse(raw, served)
    ignored = features.screen(body, _CHAT_FIELDS, features.CHAT)
    chat: ChatBody = validate.typed(ChatBody, body)
    if chat.messages is UNSET or chat.messages is None:
        raise BadRequest("'messages' is required.", param="messages", code="missing_required_parameter")
    served.limits.check_length(check_messages(chat.messages), "messages")
    choice = None if chat.tool_choice is UNSET else chat.tool_choice
    tools = check_tools(given(chat.tools, []), choice)
    adapter = _adapter(chat, served)
    logprobs = _chat_logprobs(chat)
    wishes = _wishes(chat, served)
    ids = _render(served, chat.messages, tools, given(chat.chat_template_kwargs, {}))
    own: dict[str, Any] = {"logprobs": logprobs, "tools": tools, "ignored": ignored, "adapter": adapter}
    job = _job(wishes, served, (ids,), "messages", chat=True, **own)
    return replace(job, grammar=_grammar(chat, served, tools, job))


def open_completion(raw: bytes, served: Served) -> Job:
    """Raises ApiError."""
    body = _parse(raw, served)
    best_of = body.pop("best_of", None)
    ignored = features.screen(body, _COMPLETION_FIELDS, features.COMPLETION)
    completion: CompletionBody = validate.typed(CompletionBody, body)
    adapter, wishes = _adapter(completion, served), _wishes(completion, served)
    if best_of is not None and (isinstance(best_of, bool) or best_of != wishes.n):
        raise BadRequest("'best_of' other than 'n' is not supported.", param="best_of", code="unsupported_parameter")
    logprobs = None
    if completion.logprobs is not UNSET and completion.logprobs is not None:
        logprobs = validate.whole("logprobs", completion.logprobs, 0, validate.MOST_TOP_LOGPROBS)
    prompts = read_prompts(completion.prompt, served.tokenizer, served.limits)
    own: dict[str, Any] = {"logprobs": logprobs, "ignored": ignored, "adapter": adapter}
    return _job(wishes, served, prompts, "prompt", chat=False, **own)


def _parse(raw: bytes, served: Served) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        message = f"The body is not valid JSON in UTF-8 (line {error.lineno}, column {error.colno})."
        raise BadRequest(message, code="invalid_json") from None
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object.", code="invalid_json")
    if _deeper(body, DEPTH):
        raise BadRequest(f"The body is nested deeper than {DEPTH} levels.", code="invalid_json")
    name = body.get("model")
    if isinstance(name, str):
        served.check_name(name)
    return body


def _deeper(value: Any, depth: int) -> bool:
    """Whether containers are nested deeper than that; level by level, without recursion."""
    level = [value]
    for _ in range(depth):
        inner: list[Any] = []
        for container in level:
            items = container.values() if isinstance(container, dict) else container
            inner += [item for item in items if isinstance(item, dict | list)]
        if not inner:
            return False
        level = inner
    return True


def _adapter(body: Body, served: Served) -> str | None:
    return served.adapters.choose(given(body.model, ""), given(body.adapter, None))


def _wishes(body: Body, served: Served) -> Wishes:
    seed = validate.seed(body)
    sampling = validate.sampling(body, served.defaults, served.limits)
    return Wishes(
        sampling=replace(sampling, seed=fresh_seed() if seed is None else seed),
        n=validate.number_of_choices(body, served.limits),
        stops=validate.stops(body.stop),
        max_tokens=validate.answer_limit(body),
        stream=given(body.stream, False),
        include_usage=validate.include_usage(body),
    )


def _chat_logprobs(chat: ChatBody) -> int | None:
    wanted = given(chat.logprobs, False)
    top = validate.whole("top_logprobs", given(chat.top_logprobs, 0), 0, validate.MOST_TOP_LOGPROBS)
    if top and not wanted:
        raise BadRequest("'top_logprobs' may only be set with 'logprobs': true.", param="top_logprobs")
    return top if wanted else None


def _render(served: Served, messages: list[dict[str, Any]], tools: Any, kwargs: dict[str, Any]) -> Ids:
    if not served.tokenizer.has_chat_template:
        raise BadRequest(
            "This model has no chat template: use /v1/completions, or start the server with --chat-template.",
            param="messages",
            code="no_chat_template",
        )
    try:
        return tuple(served.tokenizer.render(messages, tools, kwargs))
    except TemplateError as error:
        raise BadRequest(error.message, param=error.param or "messages", code="invalid_value") from None


def _grammar(chat: ChatBody, served: Served, tools: list[dict[str, Any]] | None, job: Job) -> Guide | None:
    """What the answer is held to. Raises BadRequest for a demand that cannot be enforced."""
    format = given(chat.response_format, None)
    if format is not None and not isinstance(format.get("type"), str):
        raise BadRequest("'response_format' needs a 'type'.", param="response_format")
    demands = {
        "response_format": format,
        "tool_choice": given(chat.tool_choice, None),
        "tools": tools,
        "parallel": given(chat.parallel_tool_calls, True),
        "prompt_ids": job.prompts[0],
    }
    try:
        return guide(served.tokenizer, served.facts.vocab_size, job.limits[0], **demands)
    except GrammarError as error:
        raise BadRequest(error.message, param=error.param) from None


def _job(
    wishes: Wishes,
    served: Served,
    prompts: tuple[Ids, ...],
    param: str,
    *,
    chat: bool,
    adapter: str | None,
    **own: Any,
) -> Job:
    """Raises ContextExceeded. An answer is cut to what the context leaves."""
    context = served.limits.context
    for ids in prompts:
        if len(ids) >= context:
            raise ContextExceeded(len(ids), context, param)
    asked = context if wishes.max_tokens is None else wishes.max_tokens
    return Job(
        id=("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex,
        created=int(time.time()),
        model=adapter or served.name,
        fingerprint=served.adapters.fingerprint(adapter, served.fingerprint) if adapter else served.fingerprint,
        chat=chat,
        wishes=wishes,
        prompts=prompts,
        limits=tuple(min(asked, context - len(ids)) for ids in prompts),
        end_ids=served.tokenizer.end_ids,
        adapter=adapter,
        **own,
    )
