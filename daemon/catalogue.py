"""GET /v1/models and /v1/models/{id}: the model and its adapters, as ready as the executor is.

Old supervisors probe only this.
"""

import orjson
from aiohttp import web

from .health import check_ready
from .state import DAEMON


async def list_models(request: web.Request) -> web.Response:
    served = check_ready(request.app[DAEMON])
    adapters = [served.adapters.card(name, served.name) for name in served.adapters.names()]
    return web.json_response(body=orjson.dumps({"object": "list", "data": [served.card(), *adapters]}))


async def show_model(request: web.Request) -> web.Response:
    """Any of the model's names finds it, and an adapter's name the adapter; names may hold slashes."""
    served = check_ready(request.app[DAEMON])
    name = request.match_info["name"]
    if name in served.adapters:
        return web.json_response(body=orjson.dumps(served.adapters.card(name, served.name)))
    if name not in served.names:
        served.check_name(name.rstrip("/") or "/")
    return web.json_response(body=orjson.dumps(served.card()))
