"""Gates on the sampler, and the mutants that show that each gate can fail."""

from .client import client
from .composition import composition, independence, mixed
from .primitives import acceptance, filters, logprobs, penalties
from .randomness import global_state, key_mixing, uniforms_and_noise
from .speculation import speculation
from .strangers import strangers
from .verdict import Gate

GATES: dict[str, Gate] = {
    "keys": key_mixing,
    "noise": uniforms_and_noise,
    "global state": global_state,
    "filters": filters,
    "penalties": penalties,
    "logprobs": logprobs,
    "acceptance": acceptance,
    "composition": composition,
    "mixed": mixed,
    "independence": independence,
    "speculation": speculation,
    "client": client,
    "foreign words": strangers,
}
