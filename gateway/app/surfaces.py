"""What programs and browsers reach of a gateway; nothing of it is loaded before its first request."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from gateway.web.api import Api

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway
    from gateway.services.operator_services import OperatorServices
    from gateway.web.dashboard.dependencies import Sources


def api_of(gateway: Gateway) -> Api:
    """The API of a gateway."""

    def services() -> OperatorServices:
        from gateway.app.services import services_of  # noqa: PLC0415 (loaded at the first request)

        return services_of(gateway)

    def make(services: OperatorServices) -> ASGIApp:
        from gateway.store.idempotency import SqliteIdempotency  # noqa: PLC0415 (loaded at the first request)
        from gateway.web.api.application import make_application  # noqa: PLC0415 (loaded at the first request)

        return make_application(services, SqliteIdempotency(gateway.store.database, owner=secrets.token_hex(8)))

    return Api(services, make)


def sources_of(gateway: Gateway, api: Api) -> Sources:
    """What the pages read; they ask the same services as the API."""
    from gateway.web.dashboard.dependencies import Sources  # noqa: PLC0415 (loaded at the first request)

    return Sources(
        services=api.services,
        config=lambda: gateway.config,
        home=gateway.home,
        reload=gateway.reloading.reload,
        naming=api.services.naming,
        personalities=gateway.personalities,
        commands=lambda: gateway.commands.infos,
    )
