"""A channel kind of a third party, with every sort of key that an adapter may have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from gateway.protocols import AdapterServices


class Loft(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    latitude: float = 0.0
    door_key: SecretStr | None = None

    @field_validator("door_key")
    @classmethod
    def _fits(cls, value: SecretStr | None) -> SecretStr | None:
        """A careless validator, which puts a secret into its error."""
        if value is not None and value.get_secret_value().startswith("bad"):
            raise ValueError(f"{value.get_secret_value()} does not fit the lock")
        return value


class Falconry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    bird: Literal["falcon"]
    bells: int = 2


class Racing(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    bird: Literal["racer"]
    speed_kmh: int = 80


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    ring: SecretStr
    speed_kmh: int = 60
    motto: Literal["home"] = "home"
    loft: Loft = Loft()
    spare_rings: tuple[SecretStr, ...] = ()
    escort: Annotated[Falconry | Racing, Field(discriminator="bird")] | None = None


def build(config: Config, services: AdapterServices) -> Any:
    return (config, services)
