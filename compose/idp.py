"""Start the development stack's identity provider, nanoidp, with TLS."""

from __future__ import annotations

import os
import sys

from nanoidp.app import create_app


def main(folder: str) -> None:
    """Serve until the process is ended; ``folder`` has its settings, users and certificate."""
    # The provider keeps its signing keys below the working directory.
    os.chdir("/tmp")
    certificate = (f"{folder}/idp.crt", f"{folder}/idp.key")
    port = int(os.environ["MESH_IDP_PORT"])
    create_app(folder).run(host="0.0.0.0", port=port, ssl_context=certificate)


if __name__ == "__main__":
    main(sys.argv[1])
