"""Files of servers, by the scheme of a URI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.connect.files import scheme_of
from mesh.receiver.types.file_ftp import FtpFiles
from mesh.receiver.types.file_sftp import SftpFiles

if TYPE_CHECKING:
    from mesh.connect.contract import NodeAccess, Options
    from mesh.receiver.types.file_systems import RemoteFiles


def remote_files(uri: str, options: Options, access: NodeAccess) -> RemoteFiles:
    """The files of the server of a URI.

    Raises:
        ValueError: an option is missing; MeshError: MESH-C132 for a server that is not open.
    """
    kind = SftpFiles if scheme_of(uri) == "sftp" else FtpFiles
    return kind(uri, options, access)
