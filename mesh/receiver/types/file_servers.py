"""Files of servers, by the scheme of a URI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.connect.files import scheme_of
from mesh.receiver.types.file_ftp import FtpFiles
from mesh.receiver.types.file_sftp import SftpFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.connect.contract import NodeAccess
    from mesh.receiver.types.file_systems import RemoteFiles


def remote_files(uri: str, options: Mapping[str, Any], access: NodeAccess) -> RemoteFiles:
    """The files of the server of a URI.

    Raises:
        ValueError: an option is missing; MeshError: MESH-C132 for a server that is not open.
    """
    kind = SftpFiles if scheme_of(uri) == "sftp" else FtpFiles
    return kind(uri, options, access)
