"""Entry point of the connector host: ``python -m mesh.receiver``."""

from __future__ import annotations

from mesh.processes.imports import import_nats

if __name__ == "__main__":
    import_nats()
    from mesh.receiver.host import main

    main()
