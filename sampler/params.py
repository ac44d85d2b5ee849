"""The parameters of one request's sampling, and the one table of defaults. Plain Python, no MLX."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the ids of one request are drawn. The defaults are the documented meaning of an omitted field.

    temperature: 0 is greedy. top_k: 0 is off. top_p: 1 is off; 0 keeps the best token alone. min_p: 0 is off.
    seed: always resolved before a request is queued (`fresh_seed` when the client gave none).
    logit_bias: pairs of (id, bias), ids inside the vocabulary.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


DEFAULTS = SamplingParams()
