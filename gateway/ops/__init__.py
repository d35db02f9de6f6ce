"""Operations: backups, privacy and telemetry."""
