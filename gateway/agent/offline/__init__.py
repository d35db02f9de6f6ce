"""The offline model: a small deterministic responder that needs no key and no network."""
