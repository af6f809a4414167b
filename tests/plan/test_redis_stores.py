"""Options of stores in Redis."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from tests.support.store_options import redis


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("username='u'", "needs nodes"),
        ("nodes='h:x@p'", "can't be read"),
        ("nodes='@p'", "can't be read"),
        ("host='h', port='x'", "can't be read"),
        ("url='http://h'", "can't be read"),
        ("url='redis://h/x'", "can't be read"),
        ("nodes='h:1@p,i:2@p'", "a cluster of Redis"),
        ("nodes='h:1@p', cluster.mode='true'", "a cluster of Redis"),
        ("nodes='h', cluster.mode='maybe'", "true or false"),
        ("nodes='h', ttl.seconds='0'", "ttl.seconds"),
        ("nodes='h', ttl.on.read='1'", "ttl.on.read"),
        ("nodes='h', ttl.seconds='5', kept='true'", "nowhere else"),
        ("nodes='h', ttl.seconds='5', @cache(size='1')", "nowhere else"),
        ("nodes='h', on.error='STORE', kept='false'", "STORE"),
        ("nodes='h', jdbc.url='x'", 'option "jdbc.url" of @store is unknown'),
        ("nodes='h', table.name='a:b'", "colon"),
        ("nodes='h', table.name='mesh_reads'", "own tables"),
    ],
)
def test_options_of_redis_that_are_refused(options: str, said: str) -> None:
    with pytest.raises(MeshError, match=said) as refused:
        redis(options)
    assert refused.value.position is not None


def test_options_of_redis() -> None:
    found = redis("nodes='h:6380@a@b,c', ttl.seconds='-1', table.name='a.b'")
    assert (found.host, found.port, found.password) == ("h", 6380, "a@b,c")
    assert redis("nodes='h'").port is None
    found = redis("host='h', port='6380', password='p'")
    assert (found.host, found.port, found.password) == ("h", 6380, "p")
    assert redis("host='h'").port is None
    assert redis("url='rediss://:p%40@h', username='u'").parameters == (("tls", "true"),)
    assert redis("url='redis://:p%40@h', username='u'").password == "p@"
