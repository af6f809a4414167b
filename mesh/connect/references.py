"""References of ``@source`` and ``@sink``: options by name, in a file of the node.

    billing:
      type: http
      apps: Shop*, Till
      basic.auth.username: mesh

``type`` is that of an annotation that has none, ``apps`` names the apps that may use the reference;
neither is an option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import yaml

from mesh.errors import MeshError
from mesh.model.access import is_open_to

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Key of a reference with the patterns of apps that may use it.
_APPS: Final = "apps"
#: Key with the type of the source or sink.
TYPE: Final = "type"


def references_of(path: str) -> Mapping[str, Mapping[str, str]]:
    """Options by name of reference, from the file of ``receiver.refs_file``.

    ``apps``, which is no option, has the patterns of apps that may use the reference.

    Raises:
        MeshError: MESH-C131 for a file that can't be read.
    """
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            references = yaml.safe_load(file) or {}
        return {
            str(name): {str(key): _text(value) for key, value in options.items()}
            for name, options in references.items()
        }
    except (OSError, yaml.YAMLError, AttributeError) as error:
        # The text of a YAML error may hold a secret.
        raise MeshError(
            "MESH-C131",
            f'file "{path}" of receiver.refs_file can\'t be read',
            detail=f"{type(error).__name__}.",
            hint="It is YAML: for each reference a mapping of options to values.",
        ) from error


def open_references(
    references: Mapping[str, Mapping[str, str]], app: str
) -> Mapping[str, Mapping[str, str]]:
    """The references that an app may use, without their ``apps``."""
    return {
        name: {key: value for key, value in options.items() if key != _APPS}
        for name, options in references.items()
        if is_open_to(options.get(_APPS), app)
    }


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def types_of(path: str) -> Mapping[str, str]:
    """The type of each reference that has one; see ``references_of``."""
    return {name: options[TYPE] for name, options in references_of(path).items() if TYPE in options}
