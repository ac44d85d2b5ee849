"""The application: which path leads to which handler, and what surrounds them all."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from . import admin, admin_drain, catalogue, completions, health, metrics_page
from .body import later
from .middleware import answer_errors, guard_callers, on_prepare
from .state import DAEMON, Daemon

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(daemon: Daemon) -> web.Application:
    """Run it with `handler_cancellation=True`: a client that leaves must cancel its handler."""
    app = web.Application(client_max_size=daemon.config.max_body_bytes, middlewares=[answer_errors, guard_callers])
    app[DAEMON] = daemon
    app.on_response_prepare.append(on_prepare(daemon))
    for path, handler in _reading().items():
        _add(app, "GET", path, handler)
    _add(app, "POST", "/v1/chat/completions", completions.chat_completions)
    _add(app, "POST", "/v1/completions", completions.completions)
    _add(app, "POST", admin_drain.PATH, admin_drain.drain)
    _add(app, "POST", admin.PATH, admin.load_adapter)
    _add(app, "DELETE", f"{admin.PATH}/{{name:.+}}", admin.unload_adapter)
    return app


def _reading() -> dict[str, Handler]:
    return {
        "/health": health.ready,
        "/health/ready": health.ready,
        "/health/live": health.live,
        "/health/deep": health.DeepProbe().handle,
        "/metrics": metrics_page.show_metrics,
        "/v1/models": catalogue.list_models,
        "/v1/models/{name:.+}": catalogue.show_model,
        admin.PATH: admin.list_adapters,
        f"{admin.PATH}/{{name:.+}}": admin.show_adapter,
    }


def _add(app: web.Application, method: str, path: str, handler: Handler) -> None:
    """With and without a trailing slash; GET answers HEAD too."""
    for spelled in (path, path + "/"):
        if spelled.endswith("}/"):
            continue
        resource = app.router.add_resource(spelled)
        for name in (method, "HEAD") if method == "GET" else (method,):
            resource.add_route(name, handler, expect_handler=later)
