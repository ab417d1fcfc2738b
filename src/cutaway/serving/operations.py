"""What those need who run a server: is it alive, is it ready, what has it done."""

from fastapi import APIRouter, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from cutaway.serving.service import ServiceHere

router = APIRouter(tags=["operations"])


@router.get("/health")
async def health() -> dict[str, str]:
    """The process is alive, also while it loads, computes or stops."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(service: ServiceHere) -> dict[str, str]:
    """It takes requests: status 503 while it loads its models, and from the moment when it is told to stop."""
    service.check_ready()
    return {"status": "ok"}


@router.get("/metrics")
async def metrics(service: ServiceHere) -> Response:
    """Counters and histograms for Prometheus."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)
