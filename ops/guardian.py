"""The guardian's day: visit each instance, judge, act when patience ends, write it all down. One task an instance."""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import aiohttp

from .guardian_act import Done, fill_in, run_command, tell_webhook
from .guardian_config import GuardianConfig, Watched
from .guardian_metrics import GuardianMetrics
from .guardian_patience import Patience
from .guardian_probe import Visitor
from .guardian_record import PatrolLog, Tally, next_report, write_report
from .guardian_verdict import Verdict, judge


@dataclass(slots=True)
class Patient:
    """One instance as the guardian knows it."""

    watched: Watched
    visitor: Visitor
    patience: Patience
    verdict: Verdict = field(default_factory=lambda: Verdict("loading", "not visited yet"))
    last_deep: float = float("-inf")
    seen_at: float | None = None
    gave_up: bool = False


class Guardian:
    """Owned by one event loop. `patients` are in the order of the configuration."""

    def __init__(self, config: GuardianConfig, session: aiohttp.ClientSession, key: str | None = None) -> None:
        self._config = config
        self._session = session
        self._log = PatrolLog(config.patrol_log)
        self.close = self._log.close
        self.metrics = GuardianMetrics()
        self.patients = [
            Patient(w, Visitor(session, w.url, key, config.ready_within, config.deep_within), Patience(config))
            for w in config.watched()
        ]
        self._since = datetime.now()
        self._tallies = self._fresh_tallies()
        self._acting = asyncio.Lock()  # one restart at a time: the others keep serving meanwhile

    def _fresh_tallies(self) -> dict[str, Tally]:
        return {patient.watched.name: Tally() for patient in self.patients}

    def opinions(self) -> dict[str, dict[str, object]]:
        return {
            p.watched.name: {"verdict": p.verdict.word, "reason": p.verdict.reason, "red": p.patience.red}
            for p in self.patients
        }

    async def patrol(self, patient: Patient) -> None:
        """Round after round, for ever."""
        while True:
            begun = time.monotonic()
            await self.visit(patient)
            await self._act_if_due(patient)
            await asyncio.sleep(max(self._config.every / 10, self._config.every - (time.monotonic() - begun)))

    async def visit(self, patient: Patient) -> Verdict:
        """A token is drawn when the last one is old enough, and at every visit to one that was not well."""
        name, now = patient.watched.name, time.monotonic()
        deep = now - patient.last_deep >= self._config.deep_every or patient.verdict.word != "well"
        reading = await patient.visitor.visit(deep)
        if reading.completion is not None:
            patient.last_deep = now
        now = time.monotonic()
        was_red = patient.patience.red
        patient.verdict = patient.patience.weigh(judge(reading, self._config.stall_after), now)
        if was_red and patient.seen_at is not None:
            self._tallies[name].red_s += now - patient.seen_at
        patient.seen_at = now
        self._log.visit(name, patient.watched.url, patient.verdict, patient.patience.misses, reading)
        self._tallies[name].visit(patient.verdict, reading)
        self.metrics.visit(name, patient.verdict, reading, patient.patience.misses, patient.patience.red)
        return patient.verdict

    async def _act_if_due(self, patient: Patient) -> None:
        decision = patient.patience.decide(time.monotonic())
        if decision == "act":
            async with self._acting:
                await self._act(patient)
            patient.patience.acted(time.monotonic())
        elif decision == "give_up" and not patient.gave_up:
            self._log.write("gave_up", patient.watched.name, actions=self._config.max_actions)
            await self._tell("gave_up", patient)
        patient.gave_up = decision == "give_up"

    async def _act(self, patient: Patient) -> None:
        values = {
            "name": patient.watched.name,
            "url": patient.watched.url,
            "verdict": patient.verdict.word,
            "reason": patient.verdict.reason,
        }
        self._log.write("acting", misses=patient.patience.misses, **values)
        if words := fill_in(self._config.command_words(), values):
            self._note("command", patient, await run_command(words, self._config.command_within))
        await self._tell("acting", patient)

    async def _tell(self, event: str, patient: Patient) -> None:
        if self._config.webhook:
            document: dict[str, Any] = {"event": event, "name": patient.watched.name, "url": patient.watched.url}
            document |= {"verdict": patient.verdict.word, "reason": patient.verdict.reason}
            self._note("webhook", patient, await tell_webhook(self._session, self._config.webhook, document))

    def _note(self, kind: str, patient: Patient, done: Done) -> None:
        name = patient.watched.name
        self._log.write("acted", name, kind=kind, outcome=done.outcome, code=done.code, output=done.output)
        self.metrics.action(name, kind, done.outcome)
        self._tallies[name].actions[f"{kind} {done.outcome}"] += 1

    async def reports(self, now: asyncio.Event) -> None:
        """One at each of the configured times, and whenever `now` is set."""
        while True:
            at = next_report(datetime.now(), self._config.report_at)
            try:
                async with asyncio.timeout((at - datetime.now()).total_seconds()):
                    await now.wait()
            except TimeoutError:
                pass
            now.clear()
            await self.report()

    async def report(self) -> str:
        """Write down and send what happened since the last one."""
        until = datetime.now()
        text = write_report(self._tallies, self._since, until, self._config.report_folder)
        self._since, self._tallies = until, self._fresh_tallies()
        self._log.write("report", text=text)
        if self._config.webhook:
            await tell_webhook(self._session, self._config.webhook, {"event": "report", "text": text})
        return text
