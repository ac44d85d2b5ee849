"""The tokenizer room's face: a model folder's text side, safe to use from any worker thread. Never touches MLX."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .answers import Answers
from .constraint import check, vocabulary
from .detokenizer import ByteDetokenizer, Detokenizer, WholeDetokenizer
from .encoder import Encoder
from .errors import TemplateError, TokenizerError
from .folder import Folder
from .grammar import GrammarError, grammar
from .messages import broken_call, prepare
from .output import OutputText
from .pieces import Pieces, Recipe
from .shield import Shield
from .specification import Specification
from .template import Template
from .vocabulary import read_vocabulary

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_OWN = frozenset({"messages", "tools", "bos_token", "eos_token"})


class Tokenizer:
    """vocab_size: ids are below it. bos_id: begins a text, if anything does. end_ids: end an answer, the union of
    what the tokenizer, config.json and generation_config.json name. registered: control tokens that the vocabulary
    holds but that the folder's own tokenizer never maps text to."""

    def __init__(self, specification: Specification, folder: Folder, tool_parser: str | None = None) -> None:
        self._encoder = Encoder(specification)
        full = self._encoder.full
        self.vocab_size = 1 + max(full.get_vocab(with_added_tokens=True).values(), default=-1)
        self.registered = specification.registered
        self._special = folder.special
        bos = full.token_to_id(folder.special.get("bos_token", ""))
        self.bos_id: int | None = folder.bos if bos is None else bos
        eos = full.token_to_id(folder.special.get("eos_token", ""))
        self.end_ids = folder.ends if eos is None else folder.ends | {eos}
        self._hidden = self.end_ids | {
            id for id, token in full.get_added_tokens_decoder().items() if token.special
        }  # fmt: skip
        self._pieces = Pieces(
            full, Recipe.read(specification.full.get("decoder"), specification.full.get("pre_tokenizer"))
        )
        self._vocabularies: dict[int, Any] = {}
        self._making = threading.Lock()
        self._answers = Answers(folder.templates.values(), self._encoder.added_ids, tool_parser)
        self._templates = {name: _compiled(source) for name, source in folder.templates.items()}

    @classmethod
    def load(cls, folder: Path, chat_template: str | None = None, *, tool_parser: str | None = None) -> "Tokenizer":
        """Read a model folder. chat_template: Jinja source used in place of the folder's own. tool_parser: how the
        model writes calls, one of `tool_formats.names()`; None reads it off the template.

        Raises TokenizerError when the folder holds no tokenizer that can be read, or for an unknown tool_parser.
        """
        about = Folder.read(Path(folder), chat_template)
        specification, about = read_vocabulary(about)
        return cls(specification, about, tool_parser)

    @property
    def has_chat_template(self) -> bool:
        return bool(self._templates)

    def encode(self, text: str, *, specials: bool = False) -> list[int]:
        """Ids of a bare text, after BOS where the tokenizer puts one. specials: control tokens' texts become their
        ids instead of characters. Raises TokenizerError for text with lone surrogates."""
        return self._encoder.encode(text, specials=specials)

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        kwargs: dict[str, Any],
        *,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """Ids of a chat. Text of the client becomes characters; only the template's own markup becomes control ids.

        Raises TemplateError with the template's own message, or naming the message, part or call at fault.
        """
        try:
            return self._render(messages, tools, kwargs, add_generation_prompt)
        except RecursionError as error:
            raise TemplateError("the messages are nested too deeply") from error

    def _render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        kwargs: dict[str, Any],
        add_generation_prompt: bool,
    ) -> list[int]:
        template = self._template(bool(tools))
        reserved = sorted(_OWN & kwargs.keys())
        if reserved:
            raise TemplateError(f"{reserved[0]} cannot be set here", "chat_template_kwargs")
        variables = {"add_generation_prompt": add_generation_prompt, **kwargs, "tools": tools or None}
        try:
            return self._rendered(template, messages, variables, textual=False)
        except TemplateError as error:
            if not any(message.get("tool_calls") for message in messages):
                raise
            try:  # some templates concatenate arguments as text
                return self._rendered(template, messages, variables, textual=True)
            except TemplateError:
                raise TemplateError(error.message, broken_call(messages) or error.param) from error

    def _rendered(
        self, template: Template, messages: list[dict[str, Any]], variables: dict[str, Any], *, textual: bool
    ) -> list[int]:
        ready = prepare(messages, developer="developer" in template.source, textual=textual)
        shield = Shield(self._encoder.controls, [ready, variables])
        quoted = [
            {**shield.request(message), **({"role": role} if (role := message.get("role")) in ROLES else {})}
            for message in ready
        ]
        text = template.render(
            {"documents": None, **self._special, **shield.request(variables), "messages": quoted}
        )  # fmt: skip
        try:
            ids = self._encoder.encode_rendered(text, shield)
        except TokenizerError as error:
            raise TemplateError(str(error)) from error
        prefix = list(self._encoder.prefix)
        return ids if ids[: len(prefix)] == prefix else prefix + ids

    def _template(self, tools: bool) -> Template:
        names = [*(["tool_use"] if tools else []), "default", *self._templates]
        found = next((self._templates[name] for name in names if name in self._templates), None)
        if found is None:
            raise TemplateError("this model has no chat template: use /v1/completions, or serve it with one")
        if isinstance(found, TemplateError):
            raise TemplateError(found.message)
        return found

    def token_text(self, id: int) -> str:
        """One token by itself, for people to read; bytes that are no character show as U+FFFD."""
        return self.token_bytes(id).decode(errors="replace")

    def token_bytes(self, id: int) -> bytes:
        """The raw bytes that a token adds to a text; empty for an id without an entry."""
        return self._pieces[id]

    def output(
        self,
        stops: tuple[str, ...] = (),
        *,
        chat: bool = False,
        tools: list[dict[str, Any]] | None = None,
        prompt_ids: Sequence[int] = (),
    ) -> OutputText:
        """The way back for one choice. chat: reasoning is told from content, and calls too when tools are offered.

        prompt_ids: the rendered prompt, which may have opened the reasoning. A control token that is itself a stop
        string is seen as text.
        """
        shown = {self._encoder.full.token_to_id(stop) for stop in stops}
        parts = None
        if chat:
            parts, markup = self._answers.parts(tools, self._tail(prompt_ids))
            shown |= markup
        return OutputText(self._detokenizer(self._hidden - shown), stops, parts)

    def grammar(
        self,
        *,
        response_format: dict[str, Any] | None = None,
        tool_choice: Any = None,
        tools: list[dict[str, Any]] | None = None,
        parallel: bool = True,
        prompt_ids: Sequence[int] = (),
    ) -> str | None:
        """What llguidance's matcher must hold this answer to, checked; None when the answer is free.

        Raises GrammarError naming the field whose demand cannot be enforced.
        """
        writing = self._answers.writing(self._tail(prompt_ids), self._hidden)
        demands = {"response_format": response_format, "tool_choice": tool_choice, "tools": tools}
        lark = grammar(writing, **demands, parallel=parallel)
        if lark is None:
            return None
        made = next(iter(self._vocabularies.values()), None)
        return check(lark, made or self.grammar_vocabulary(self.vocab_size), "tools" if tools else "response_format")

    def grammar_vocabulary(self, size: int) -> Any:
        """llguidance's LLTokenizer over `size` ids, as many as the model has logits. Made once for each size;
        a second of work for a large vocabulary, so better asked for before the first request."""
        with self._making:
            return self._vocabularies.get(size) or self._make_vocabulary(size)

    def _make_vocabulary(self, size: int) -> Any:
        tokens = [self._pieces[id] for id in range(size)]
        special = sorted(id for id in self._hidden if id < size)
        ends = sorted(id for id in self.end_ids if id < size)
        if not ends:
            raise GrammarError("a model without an end token cannot be held to a grammar", "response_format")
        self._vocabularies[size] = vocabulary(tokens, special, self.bos_id, ends)
        return self._vocabularies[size]

    def reasoning_end(self, size: int) -> tuple[int, ...]:
        """Ids that end the model's reasoning, of a model with `size` logits."""
        text, id = self._answers.reasoning_end
        return (id,) if id is not None else tuple(self.grammar_vocabulary(size).tokenize_bytes(text.encode()))

    def _tail(self, prompt_ids: Sequence[int]) -> str:
        """The end of a prompt as text, control tokens included."""
        return b"".join(self._pieces[id] for id in prompt_ids[-16:]).decode(errors="replace")

    def _detokenizer(self, hidden: frozenset[int]) -> Detokenizer:
        if self._pieces.recipe.exact:
            return ByteDetokenizer(self._pieces, hidden)
        return WholeDetokenizer(self._encoder.full, hidden)


def _compiled(source: str) -> Template | TemplateError:
    """A template that does not compile is a refusal of chats, not of the model."""
    try:
        return Template(source)
    except TemplateError as error:
        return error
