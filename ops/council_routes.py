"""From names to instances: every model name and every tiered name becomes a route, and every route must be served."""

from collections.abc import Sequence
from dataclasses import dataclass

from .council_config import TIERED, Council, CouncilError, Instance

Tiers = tuple[tuple[Instance, ...], ...]


@dataclass(frozen=True, slots=True)
class Route:
    """names: what clients may ask for. tiers: instances, best tier first; one tier for a plain model."""

    key: str
    names: tuple[str, ...]
    tiers: Tiers


def plan_routes(council: Council) -> tuple[Route, ...]:
    """Names that lead to the same instances share a route. Raises CouncilError for a route that is not served."""
    found: dict[Tiers, list[str]] = {}
    for name, tiers in _named(council).items():
        found.setdefault(tiers, []).append(name)
    return tuple(
        Route(f"route_{number}", tuple(names), tiers) for number, (tiers, names) in enumerate(found.items(), start=1)
    )


def backend_name(route: Route, tier: int) -> str:
    """What HAProxy calls a tier of a route."""
    return route.key if len(route.tiers) == 1 else f"{route.key}_tier_{tier + 1}"


def default_route(council: Council, routes: Sequence[Route]) -> Route | None:
    """Where a request without a model goes: the configured default, or the only route there is."""
    if council.default is None:
        return routes[0] if len(routes) == 1 else None
    for route in routes:
        if council.default in route.names:
            return route
    raise CouncilError(f"default {council.default!r} is served by no instance")


def _named(council: Council) -> dict[str, Tiers]:
    plain = dict.fromkeys(m for i in council.instances for m in i.models if not m.startswith(TIERED))
    named: dict[str, Tiers] = {model: (_serving(council, model),) for model in plain}
    for tier, models in council.tiers.items():
        named[TIERED + tier] = _tiers(council, TIERED + tier, models)
    for instance in council.instances:
        for model in instance.models:
            if model not in named:
                raise CouncilError(f"instances.{instance.name} serves {model!r}, but [tiers] does not define it")
    return named


def _serving(council: Council, model: str) -> tuple[Instance, ...]:
    return tuple(instance for instance in council.instances if model in instance.models)


def _tiers(council: Council, route: str, models: Sequence[str]) -> Tiers:
    """An instance stands in the best tier that it can; it must answer to the route's name as well."""
    tiers: list[tuple[Instance, ...]] = []
    placed: set[str] = set()
    for model in models:
        serving = _serving(council, model)
        if not serving:
            raise CouncilError(f"route {route}: no instance serves its tier {model!r}")
        for instance in serving:
            if route not in instance.models:
                raise CouncilError(
                    f"route {route}: instances.{instance.name} serves its tier {model!r} but not the route's name; "
                    f"start it with --served-model-name {route} and add the name to its models"
                )
        tiers.append(tuple(i for i in serving if i.name not in placed))
        placed.update(i.name for i in serving)
    return tuple(tier for tier in tiers if tier)
