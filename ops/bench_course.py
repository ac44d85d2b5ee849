"""What every scenario works with: the servers in turn, the load generator, the bare loop, prompts of known length."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..tokenizer.tokenizer import Tokenizer
from .bench_bare import Ask, Told
from .bench_child import Child
from .bench_plan import COMPLETIONS, Cue, Load, Outcome, Report, Shot
from .bench_prompts import Gauge, Prompts, fit
from .bench_servers import Server
from .bench_sizes import Sizes

BARE = "bare-loop"
Figures = Iterator[tuple[str, float]]


class NotMeasured(Exception):
    """A scenario cannot be run here or was refused; the message says why. The others go on."""


@dataclass(slots=True)
class Course:
    """What is the same for all scenarios of a run.

    subject: name of the server that ratios are about. folder: the model's files where they are on this machine.
    gauge: how the first server counts our words.
    """

    sizes: Sizes
    seed: int
    loader: Child
    subject: str
    folder: Path | None = None
    bare: Child | None = None
    gauge: Gauge = field(default_factory=Gauge)
    _tokenizer: Tokenizer | None = None
    _greedy: dict[str, list[int]] = field(default_factory=dict)

    # -- prompts ---------------------------------------------------------------------------------

    def prompts(self, label: str) -> Prompts:
        """The same for every server."""
        return Prompts(self.seed, label, self.gauge)

    def measure_gauge(self, server: Server) -> None:
        """How many tokens our words are, as the server counts them; one for each word if it does not say."""
        counts = []
        for words in (40, 120):
            text = Prompts(self.seed, f"gauge {words}", Gauge()).words(words)
            (outcome,) = self.fire(server, [self.shot(server, text, 1)]).outcomes
            counts.append((words, outcome.prompt_tokens or words))
        self.gauge = fit(*counts)

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            if self.folder is None:
                raise NotMeasured("needs the model's files: name them with --model")
            self._tokenizer = Tokenizer.load(self.folder)
        return self._tokenizer

    # -- requests --------------------------------------------------------------------------------

    def shot(
        self,
        server: Server,
        prompt: str,
        tokens: int,
        after: Cue | None = None,
        leave: Cue | None = None,
        **fields: Any,
    ) -> Shot:
        """A streaming completion. Temperature 1 is said, not left out: servers differ in what they take it for."""
        body = {
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 1.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"model": server.model} if server.model is not None else {}),
            **fields,
        }
        return Shot(body, COMPLETIONS, after, leave)

    def fire(self, server: Server, shots: Sequence[Shot], probes: Sequence[str] = ()) -> Report:
        """Raises NotMeasured when any shot that we did not break off ourselves got no answer."""
        load = Load(server.base_url, tuple(shots), tuple(probes), headers=server.headers)
        report = self.loader.ask(load, Report)
        for outcome in report.outcomes:
            check(server, outcome)
        return report

    def run_bare(self, prompts: Sequence[str], tokens: int) -> Told:
        """The bare loop over these texts, cut to the length of the shortest."""
        if self.bare is None:
            raise NotMeasured("the bare loop needs the model's files: name them with --model")
        ids = [self.tokenizer.encode(prompt) for prompt in prompts]
        shortest = min(map(len, ids))
        told = self.bare.ask(Ask([row[:shortest] for row in ids], tokens), Told)
        if len(prompts) == 1:
            self._greedy[prompts[0]] = told.ids[0]
        return told

    def greedy_ids(self, prompt: str, tokens: int) -> list[int]:
        """What the bare loop says to a prompt, remembered from its measurement if there was one."""
        return self._greedy.get(prompt) or self.run_bare([prompt], tokens).ids[0]


def check(server: Server, outcome: Outcome) -> None:
    if outcome.error is not None or (outcome.status != 200 and not outcome.left):
        raise NotMeasured(f"{server.name}: {outcome.error or f'status {outcome.status}'}")
    if not outcome.left and not outcome.arrivals_s and not outcome.completion_tokens:
        raise NotMeasured(f"{server.name} gave an empty answer (finish {outcome.finish!r})")


@dataclass(frozen=True, slots=True)
class Scenario:
    """measure: one server once; yields figures by name (the suffix is the unit). bare: the same of the bare loop.

    subject_only: ours (or the first attached) alone is measured. own_processes: it starts some that noise would count.
    """

    name: str
    measure: Callable[[Course, Server, int], Figures]
    bare: Callable[[Course, int], Figures] | None = None
    subject_only: bool = False
    own_processes: bool = False
