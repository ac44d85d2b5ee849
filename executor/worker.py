"""The thread that owns MLX: it opens a stream and its own dice, loads the model, proves it, and serves.

Everything here runs on the executor thread; the event loop hands commands in and gets events out.
"""

import os
import threading
from collections.abc import Callable, Sequence

import mlx.core as mx

from ..lora.info import AdapterInfo
from ..sampler.keys import fresh_seed
from ..sampler.params import SamplingParams
from . import device
from .errors import ModelLoadError
from .inbox import Inbox
from .model import LoadedModel, load
from .news import one_line
from .pulse import Pulse
from .request import AdapterReply, Delta, Event, Failure, Request
from .rounds import Rounds
from .settings import EngineSettings, ModelFacts

Outlet = Callable[[Sequence[Event | AdapterReply]], None]
OnLoad = Callable[[ModelFacts, tuple[AdapterInfo, ...], str | None], None]
OnEnd = Callable[[str | None, LoadedModel | None], None]


class Worker:
    """One life of the executor thread. `model`: what it loaded, or took over from a generation that died."""

    def __init__(self, settings: EngineSettings, inbox: Inbox, pulse: Pulse, outlet: Outlet) -> None:
        self.settings = settings
        self.inbox = inbox
        self.pulse = pulse
        self.outlet = outlet
        self.model: LoadedModel | None = None

    def run(self, model: LoadedModel | None, on_load: OnLoad) -> None:
        """Open, load, prove, serve. Returns on Stop; raises whatever else ends it."""
        remark = self.open_thread()
        self.model = model or load(self.settings, self.pulse.tick)
        rounds = Rounds(self.model, self.settings, self.pulse)
        self.prove(rounds)
        self.pulse.loaded = True
        on_load(self.model.facts, self.model.bank.infos(), remark)
        try:
            self.serve(rounds)
        finally:
            rounds.close()

    def open_thread(self) -> str | None:
        """A stream for life, and a random state of this thread's own. Returns a remark on the device, or None."""
        remark = device.prepare()
        stream = mx.new_stream(mx.default_device())
        mx.set_default_stream(stream)
        mx.random.seed(int.from_bytes(os.urandom(8)))
        mx.eval(mx.random.state)
        thread = threading.current_thread()
        self.pulse.thread, self.pulse.thread_id = thread.name, thread.native_id
        self.pulse.stream, self.pulse.device = str(stream), device.describe()
        self.pulse.seed_state = "seeded from the operating system's entropy, evaluated"
        return remark

    def close_thread(self) -> None:
        """The streams go last: a thread that leaves them behind can abort the process as it exits."""
        mx.clear_cache()
        mx.clear_streams()

    def prove(self, rounds: Rounds) -> None:
        """Draw one token the way that a default client does, before anybody is told that the model is ready."""
        rounds.obey(Request("canary", (0,), 1, SamplingParams(seed=fresh_seed()), probe=True))
        events = rounds.news.take()
        drawn = [event.ids[0] for event in events if isinstance(event, Delta) and event.ids]
        if not drawn:
            raise ModelLoadError(f"the model loads, but a sampled draw from it fails: {_reasons(events)}")
        self.pulse.canary = f"drew token {drawn[0]}"

    def serve(self, rounds: Rounds) -> None:
        """The page that everyone should read: take commands, make a round, hand out what it brought."""
        while not rounds.stopping:
            if rounds.idle:
                rounds.rest()
            commands = self.inbox.take(block=rounds.idle)
            self.pulse.wake()
            for command in commands:
                rounds.obey(command)
            rounds.turn()
            self.flush(rounds)

    def flush(self, rounds: Rounds) -> None:
        """All rows' news of a round cross to the event loop in one call."""
        if events := rounds.news.take():
            self.outlet(events)


def _reasons(events: Sequence[Event | AdapterReply]) -> str:
    return "; ".join(event.message for event in events if isinstance(event, Failure)) or "no token came back"


def thread_main(
    settings: EngineSettings,
    inbox: Inbox,
    pulse: Pulse,
    outlet: Outlet,
    model: LoadedModel | None,
    on_load: OnLoad,
    on_end: OnEnd,
) -> None:
    """Body of the executor thread. `on_end(reason, model)` is its last act; a reason of None is a wanted end."""
    worker = Worker(settings, inbox, pulse, outlet)
    reason: str | None = None
    try:
        worker.run(model, on_load)
    except ModelLoadError as error:
        reason = str(error)
    except BaseException as error:
        reason = one_line(error)
    # Only here have the rounds and their arrays been released, with the frames that an exception held.
    worker.close_thread()
    on_end(reason, worker.model)
