"""Sink ``s3``: an object for each payload; a repeat overwrites it with the same content."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.access import check_url
from mesh.connect.contract import UnavailableError, library
from mesh.receiver.outcomes import outcomes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping

#: Requests under way at a time; objects of one name are written one after the other.
_AT_ONCE: Final = 16
_CALL_S: Final = 30
#: Answers to a request that would be the same again.
_REFUSED: Final = ("KeyTooLongError", "EntityTooLarge", "InvalidURI", "InvalidArgument",
                   "XMinioInvalidObjectName")  # fmt: skip


def name_of(path: str, record: Record) -> str:
    """The object's name; a path that ends in ``/`` gets the position, in order of names."""
    if not path.endswith("/"):
        return path
    sequence, _, index = record.key.rpartition("/")[2].partition(".")
    return f"{path}{sequence:0>20}-{index or '0':0>6}"


class S3Sink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self._exits = contextlib.AsyncExitStack()
        self._client: Any = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Make a client, and look whether the bucket is there."""
        session = library("aiobotocore.session", "s3").get_session()
        config = library("aiobotocore.config", "s3").AioConfig(
            connect_timeout=_CALL_S, read_timeout=_CALL_S, max_pool_connections=_AT_ONCE
        )
        options = self._options = context.options
        host = f"https://s3.{options.get('aws.region')}.amazonaws.com"
        check_url(context.access, str(options.get("endpoint") or host), 443)
        self._type = options.get("content.type") or context.content_type
        self._client = await self._exits.enter_async_context(
            session.create_client(
                "s3",
                region_name=options.get("aws.region"),
                endpoint_url=options.get("endpoint"),
                aws_access_key_id=options.get("aws.access.key"),
                aws_secret_access_key=options.get("aws.secret.key"),
                config=config,
            )
        )
        await self._call(self._client.head_bucket, Bucket=options["bucket.name"])

    async def _call(self, method: Any, **arguments: Any) -> object:
        errors = library("botocore.exceptions", "s3")
        try:
            return await method(**arguments)
        except (errors.BotoCoreError, errors.ClientError, OSError, TimeoutError) as error:
            raise UnavailableError(str(error) or type(error).__name__) from error

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Put the objects."""
        names: dict[str, list[int]] = {}
        results: list[str | BaseException | None] = [None] * len(records)
        for at, record in enumerate(records):
            path = str({**self._options, **record.options}["object.path"])
            if path.strip("/"):
                names.setdefault(name_of(path, record), []).append(at)
            else:
                results[at] = 'option "object.path" is empty'
        room = asyncio.Semaphore(_AT_ONCE)

        async def put(name: str, places: list[int]) -> None:
            async with room:
                for number, at in enumerate(places):
                    try:
                        results[at] = await self._put(name, records[at].payload)
                    except Exception as error:
                        # Objects of one name stay in order.
                        for later in places[number:]:
                            results[later] = error
                        return

        await asyncio.gather(*(put(*one) for one in names.items()))
        return outcomes_of(results)

    async def _put(self, name: str, payload: bytes) -> str | None:
        try:
            await self._call(
                self._client.put_object,
                Bucket=self._options["bucket.name"],
                Key=name,
                Body=payload,
                ContentType=self._type,
                StorageClass=str(self._options.get("storage.class") or "standard").upper(),
            )
        except UnavailableError as error:
            code = getattr(error.__cause__, "response", {}).get("Error", {}).get("Code")
            is_invalid = type(error.__cause__).__name__ == "ParamValidationError"
            if code in _REFUSED or is_invalid:
                return str(error)
            raise
        return None

    async def close(self) -> None:
        """Close the connections."""
        self._client = None
        await self._exits.aclose()
