"""The application: gates in front, one form of errors, the routes.

app = create_app(Service(scheduler=Scheduler(), models={...}))
"""

from collections.abc import Collection

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException

from cutaway import __version__
from cutaway.errors import CutawayError
from cutaway.serving import openai_routes, operations, task_routes, translate_routes
from cutaway.serving.errors import answer_error
from cutaway.serving.gates import LOCAL, Guarded, Measured, Watched
from cutaway.serving.service import Service

ROUTERS: list[APIRouter] = [openai_routes.router, translate_routes.router, task_routes.router, operations.router]
# Paths whose errors are {"error": "…"}, as LibreTranslate's clients read them.
PLAIN_ERRORS = {"/translate", "/detect", "/languages", "/frontend/settings"}
# Paths that may have the key in their body, and check it themselves: `gates.check_key`.
KEY_IN_BODY = {"/translate", "/detect", "/languages"}


def create_app(service: Service, *, hosts: Collection[str] | None = LOCAL, origins: Collection[str] = ()) -> FastAPI:
    """The application for some models. `hosts` are the names by which it is asked (None: any), `origins` those of
    other sites whose pages may ask it."""
    # no pages of documentation: they would load scripts from elsewhere
    app = FastAPI(title="Cutaway", version=__version__, docs_url=None, redoc_url=None)
    app.state.service, app.state.plain_errors, app.state.key_in_body = service, PLAIN_ERRORS, KEY_IN_BODY
    for router in ROUTERS:
        app.include_router(router)
    for kind in (CutawayError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, answer_error)
    # the last one is the first that a request passes
    app.add_middleware(Measured, service=service)
    app.add_middleware(Guarded, service=service, hosts=hosts, origins=origins)
    if origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(Watched, service=service)
    return app
