"""GET /v1/models and /v1/models/{id}: as ready as the executor is, because old supervisors probe only this."""

import orjson
from aiohttp import web

from .health import check_ready
from .state import DAEMON


async def list_models(request: web.Request) -> web.Response:
    served = check_ready(request.app[DAEMON])
    return web.json_response(body=orjson.dumps({"object": "list", "data": [served.card()]}))


async def show_model(request: web.Request) -> web.Response:
    """Any of the model's names finds it; names may hold slashes."""
    served = check_ready(request.app[DAEMON])
    name = request.match_info["name"]
    if name not in served.names:
        served.check_name(name.rstrip("/") or "/")
    return web.json_response(body=orjson.dumps(served.card()))
