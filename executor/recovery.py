"""After a step that raised: which row was it? Each row is prefilled and stepped alone, in a batch of its own.

Runs on the executor thread only.
"""

from collections.abc import Callable
from collections.abc import Sequence as Several

from .batch import Batch
from .prefill import Prefill
from .sequence import Sequence

Verdicts = tuple[list[Sequence], list[tuple[Sequence, Exception]]]


def put_rows_on_trial(
    suspects: Several[Sequence], new_batch: Callable[[], Batch], chunk: int, tick: Callable[[], None]
) -> Verdicts:
    """Those that pass alone, and those that raise, with what they raised. The rows themselves are not advanced."""
    innocent: list[Sequence] = []
    guilty: list[tuple[Sequence, Exception]] = []
    for row in suspects:
        try:
            _step_alone(row.twin(), new_batch(), chunk, tick)
        except Exception as error:
            guilty.append((row, error))
        else:
            innocent.append(row)
    return innocent, guilty


def _step_alone(row: Sequence, batch: Batch, chunk: int, tick: Callable[[], None]) -> None:
    layers = batch.model.new_layers()
    prefill = Prefill(row.ids, [row], layers)
    while prefill.remaining > 0:
        prefill.advance(batch.model, chunk)
        tick()
    batch.join([row], [layers])
    batch.step()
    batch.step()
    tick()
