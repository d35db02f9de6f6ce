"""The checks of `ethos doctor`, in the order of the report."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from gateway.cli import doctor_access, doctor_configuration, doctor_files, doctor_running, doctor_stores
from gateway.cli.finding import Check, Finding, Ground
from gateway.config.file import load_config
from gateway.errors import ConfigError, EthosError
from gateway.files.home import data_directory
from gateway.files.running_gateway import running_gateway
from gateway.runtime.logs import hiding, secrets_in

CHECKS: Sequence[Check] = (
    doctor_configuration.versions,
    doctor_configuration.configuration,
    doctor_configuration.personalities,
    doctor_configuration.models,
    doctor_configuration.answers,
    doctor_configuration.embeddings,
    doctor_configuration.telemetry,
    doctor_files.data_directory_exists,
    doctor_files.modes,
    doctor_files.out_of_reach,
    doctor_files.file_system,
    doctor_files.disk_space,
    doctor_files.web_token,
    doctor_files.left_by_a_dead_gateway,
    doctor_files.port,
    doctor_running.running,
    doctor_running.terminal,
    doctor_stores.database,
    doctor_stores.queues,
    doctor_stores.memory_journal,
    doctor_stores.shared_memory,
    doctor_stores.identity_map,
    doctor_access.access,
    doctor_stores.clock,
    doctor_stores.backups,
)


async def examine(*, asks_models: bool = False) -> list[Finding]:
    """Run all checks on the data directory, and call the models if wished."""
    home = data_directory()
    if home.is_dir() and not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        return [Finding(level="problem", what=f"You may not use {home}.", advice="Run ethos as the user who owns it.")]
    try:
        config = load_config(home=home).config
    except ConfigError:
        config = None
    ground = Ground(home=home, config=config, process=running_gateway(home), asks_models=asks_models)
    findings: list[Finding] = []
    for check in CHECKS:
        found = check(ground)
        try:
            findings += [finding async for finding in found] if isinstance(found, AsyncIterator) else list(found)
        except (EthosError, OSError) as error:  # what one check is there to find can be in the way of another
            unexpected = Finding(level="problem", what=str(error), advice="Fix this, then run the doctor again.")
            if unexpected.what not in {finding.what for finding in findings}:
                findings.append(unexpected)
    hide = hiding(secrets_in(config))  # an error may quote what a library said, and with it a secret
    return [replace(finding, what=hide(finding.what)) for finding in findings]
