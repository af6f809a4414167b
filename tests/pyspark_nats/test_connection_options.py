"""Authentication by options, files and contexts of the ``nats`` command; without a server."""

from __future__ import annotations

import base64
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_nats.errors import OptionError
from pyspark_nats.protocol import connection_options
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import sink_options
from pyspark_nats.source import source_options
from tests.support import jwts
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_nats.protocol.connection_options import ConnectionOptions
    from tests.support.environment import Variables


URL = {"servers": "nats://h:4222"}


def read(**given: str) -> ConnectionOptions:
    return connection_options.connection_options(given)


def refused(**given: Any) -> str:
    texts = {name: str(value) for name, value in given.items()}
    with pytest.raises(OptionError) as raised:
        connection_options.connection_options({**URL, **texts})
    return str(raised.value)


@pytest.fixture
def contexts(tmp_path: Path, environment: Variables) -> Path:
    """A folder of context files, and a home directory."""
    environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    environment["HOME"] = str(tmp_path / "home")
    (tmp_path / "home").mkdir()
    directory = tmp_path / "config/nats/context"
    directory.mkdir(parents=True)
    return directory


def save(contexts: Path, name: str, **fields: Any) -> None:
    # The command line writes every field, most of them empty.
    empty = {"description": "", "url": "", "token": "", "user": "", "creds": "", "nsc": ""}
    (contexts / f"{name}.json").write_text(json.dumps({**empty, **fields}))


# --- servers


def test_servers_are_urls_with_or_without_a_scheme_and_a_port() -> None:
    given = read(servers="a, nats://b:1, tls://[::1]:2,nats://c")
    assert [str(one) for one in given.servers] == [
        "nats://a:4222", "nats://b:1", "tls://[::1]:2", "nats://c:4222",
    ]  # fmt: skip


def test_the_user_part_of_a_url_is_who_we_are_at_that_server() -> None:
    one, other, third = read(servers="nats://ann:p%40ss@a,nats://t0ken@b,nats://c").servers
    assert (one.credentials.user, one.credentials.password) == ("ann", "p@ss")
    assert (other.credentials.user, other.credentials.token) == ("", "t0ken")
    assert not third.credentials.is_present


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("", 'option "servers" is missing'),
        (" , ", 'option "servers" names no server'),
        ("http://ann:secret@h", 'names "h", which is no server'),
        ("nats://ann:secret@h:port", 'names "h:port", which is no server'),
        ("nats://[::1", "which is no server"),
        ("nats://h:0", "which is no server"),
        ("nats://h/path", "which is no server"),
        ("wss://ann:secret@h:443", 'names "h:443" as a WebSocket'),
    ],
)
def test_servers_that_are_none_are_refused_without_their_secrets(servers: str, said: str) -> None:
    text = refused(servers=servers)
    assert said in text
    assert "secret" not in text


# --- authentication


def test_a_seed_is_taken_as_text_or_from_a_file(tmp_path: Path) -> None:
    seed = jwts.key("user").seed
    bare, decorated = tmp_path / "bare", tmp_path / "decorated"
    bare.write_text(f"{seed}\n")
    decorated.write_text(
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    assert read(**URL, nkeySeed=seed).credentials.seed == seed
    assert read(**URL, nkeyseedfile=str(bare)).credentials.seed == seed
    assert read(**URL, nkeySeedFile=str(decorated)).credentials.seed == seed


def test_a_credentials_file_is_read_once_and_needed_no_more(tmp_path: Path) -> None:
    user, operator = jwts.key("user"), jwts.Operator()
    path = jwts.creds(tmp_path / "ann.creds", operator.user_jwt(user), user.seed)
    given = read(**URL, credentials=str(path))
    path.unlink()
    there = pickle.loads(pickle.dumps(given))
    assert there == given
    assert hash(there) == hash(given)
    assert there.credentials.seed == user.seed


def test_a_jwt_of_a_bearer_needs_no_seed(tmp_path: Path) -> None:
    jwt = jwts.Operator().user_jwt(jwts.key("user"), bearer_token=True)
    path = tmp_path / "ann.creds"
    path.write_text(f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n")
    assert read(**URL, credentials=str(path)).credentials.jwt == jwt


def test_malformed_seeds_and_credentials_say_what_is_wrong(tmp_path: Path) -> None:
    operator, user, other = jwts.Operator(), jwts.key("user"), jwts.key("user")
    jwt = operator.user_jwt(user)
    path = tmp_path / "c"
    mistyped = user.seed[:20] + ("A" if user.seed[20] != "A" else "B") + user.seed[21:]
    assert "malformed nkey seed" in refused(nkeySeed=mistyped)
    assert "no nkey seed" in refused(nkeySeed="SUSHI")
    assert "of an account, not of a user" in refused(nkeySeed=operator.account.seed)
    path.write_text("hello")
    assert f'option "nkeySeedFile" names "{path}", which holds no nkey seed' in refused(
        nkeySeedFile=path
    )
    assert "holds no JWT" in refused(credentials=path)
    jwts.creds(path, jwt, other.seed)
    assert "a seed that is not that of the JWT's user" in refused(credentials=path)
    jwts.creds(path, jwt, mistyped)
    assert "malformed nkey seed" in refused(credentials=path)
    jwts.creds(path, "a.b.c", user.seed)
    assert "can't be decoded" in refused(credentials=path)
    path.write_text(f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n")
    assert "holds a JWT and no seed" in refused(credentials=path)
    missing = tmp_path / "missing"
    for name in ("credentials", "nkeySeedFile"):
        text = refused(**{name: missing})
        assert f'option "{name}" names "{missing}", which can\'t be read' in text
        assert "No such file" in text
    path.write_bytes(b"\xff\xfe")
    assert "which is no text file" in refused(credentials=path)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"user": "a", "password": "b", "token": "c"}, ('"user"', '"token"')),
        ({"token": "c", "nkeySeed": "S"}, ('"token"', '"nkeySeed"')),
        ({"nkeySeed": "S", "nkeySeedFile": "f"}, ('"nkeySeed"', '"nkeySeedFile"')),
        ({"user": "a", "credentials": "f"}, ('"user"', '"credentials"')),
        ({"password": "a", "token": "c"}, ('"token"', '"password"')),
        ({"servers": "nats://a:b@h", "user": "c"}, ('"servers"', '"user"')),
        ({"jsDomain": "hub", "jsApiPrefix": "other"}, ('"jsDomain"', '"jsApiPrefix"')),
    ],
)
def test_two_ways_to_say_who_we_are_contradict_each_other(
    given: dict[str, str], names: tuple[str, str]
) -> None:
    text = refused(**given)
    assert all(f"option {name}" in text for name in names)
    assert "contradict each other" in text


def test_a_password_alone_is_refused() -> None:
    assert 'option "password" is given without "user"' in refused(password="b")


def test_nothing_secret_shows(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("client")
    user, operator = jwts.key("user"), jwts.Operator()
    path = jwts.creds(tmp_path / "c", operator.user_jwt(user), user.seed)
    tls = {"tlsCa": str(authority.cert), "tlsCert": str(pair.cert), "tlsKey": str(pair.key)}
    for given in (
        {**URL, **tls, "credentials": str(path)},
        {**URL, "nkeySeed": user.seed},
        {**URL, "user": "ann", "password": "secret"},
        {**URL, "token": "secret"},
        {"servers": "nats://ann:secret@h,nats://secret@i"},
    ):
        options = connection_options.connection_options(given)
        for shown in (repr(options), repr(Connection(options)), str(options.servers)):
            for secret in ("secret", user.seed, "eyJ", "BEGIN"):
                assert secret not in shown


# --- TLS


def test_certificates_are_read_and_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.issue("client"), authority.issue("other")
    given = read(
        **URL, tlsCa=str(authority.cert), tlsCert=str(pair.cert), tlsKey=str(pair.key),
        tlsFirst="true",
    )  # fmt: skip
    assert given.tls.ca == authority.cert.read_text()
    assert given.tls.is_first
    assert given.tls.is_demanded
    assert not read(**URL, tlsFirst="false").tls.is_demanded
    text = refused(tlsCert=pair.cert, tlsKey=other.key)
    assert f'option "tlsKey" names "{other.key}", which is not the key of the certificate' in text
    nothing = tmp_path / "nothing"
    nothing.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert f'option "tlsCa" names "{nothing}", which holds no certificate' in refused(tlsCa=nothing)
    nothing.write_text("")
    assert "which is empty" in refused(tlsCert=nothing, tlsKey=pair.key)
    nothing.write_text("nothing")
    assert "holds no certificate" in refused(tlsCert=nothing, tlsKey=pair.key)
    assert f'option "tlsKey" names "{nothing}", which can\'t be loaded' in refused(
        tlsCert=pair.cert, tlsKey=nothing
    )
    assert 'option "tlsCert" is given without "tlsKey"' in refused(tlsCert=pair.cert)
    assert 'option "tlsKey" is given without "tlsCert"' in refused(tlsKey=pair.key)
    assert "can't be read" in refused(tlsCa=tmp_path / "missing")
    assert 'option "tlsFirst" is "yes"' in refused(tlsFirst="yes")


def test_no_file_with_a_key_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    pair = Authority(tmp_path).issue("client")
    read(**URL, tlsCert=str(pair.cert), tlsKey=str(pair.key))
    assert list(scratch.iterdir()) == []


# --- subjects


def test_prefixes_of_subjects() -> None:
    given = read(**URL, inboxPrefix="_INBOX_ann.", jsDomain="hub")
    assert (given.inbox_prefix, given.js_api_prefix) == ("_INBOX_ann", "$JS.hub.API")
    assert read(**URL).js_api_prefix == "$JS.API"
    assert read(**URL, jsApiPrefix="from.ann.API.").js_api_prefix == "from.ann.API"
    assert read(**URL, jsDomain="hub", jsApiPrefix="$JS.hub.API").js_api_prefix == "$JS.hub.API"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inboxPrefix", "a b"),
        ("inboxPrefix", "a.*"),
        ("inboxPrefix", "a..b"),
        ("inboxPrefix", ">"),
        ("jsApiPrefix", "*.API"),
        ("jsDomain", "a.b"),
        ("jsDomain", "*"),
    ],
)
def test_prefixes_that_are_none_are_refused(name: str, value: str) -> None:
    text = refused(**{name: value})
    assert f'option "{name}" is "{value}"' in text


# --- contexts


def test_a_context_gives_what_no_option_says(contexts: Path, tmp_path: Path) -> None:
    user = jwts.key("user")
    (tmp_path / "home/ann.nk").write_text(user.seed)
    save(
        contexts, "prod", url="tls://a:1,b:2", nkey="~/ann.nk", inbox_prefix="_I.ann",
        jetstream_domain="hub", tls_first=True,
    )  # fmt: skip
    given = read(context="prod")
    assert [str(one) for one in given.servers] == ["tls://a:1", "nats://b:2"]
    assert given.credentials.seed == user.seed
    assert (given.inbox_prefix, given.js_api_prefix) == ("_I.ann", "$JS.hub.API")
    assert given.tls.is_first
    by_hand = read(context="prod", servers="c", token="t", jsApiPrefix="x", tlsFirst="false")
    assert [str(one) for one in by_hand.servers] == ["nats://c:4222"]
    assert by_hand.credentials.token == "t"
    assert not by_hand.credentials.seed
    assert by_hand.js_api_prefix == "x"
    assert not by_hand.tls.is_first
    assert by_hand.inbox_prefix == "_I.ann"


def test_a_context_is_found_by_name_by_path_and_in_the_home_directory(
    contexts: Path, tmp_path: Path, environment: Variables
) -> None:
    save(contexts, "prod.eu", url="a")
    assert str(read(context="prod.eu").servers[0]) == "nats://a:4222"
    assert str(read(context=str(contexts / "prod.eu.json")).servers[0]) == "nats://a:4222"
    del environment["XDG_CONFIG_HOME"]
    in_home = tmp_path / "home/.config/nats/context"
    in_home.mkdir(parents=True)
    save(in_home, "prod.eu", url="b")
    assert str(read(context="prod.eu").servers[0]) == "nats://b:4222"
    assert str(read(context="~/.config/nats/context/prod.eu.json").servers[0]) == "nats://b:4222"


def test_who_we_are_by_hand_goes_before_all_that_a_context_says(contexts: Path) -> None:
    save(contexts, "prod", url="nats://ann:pw@a", password="other")
    (server,) = read(context="prod", token="t").servers
    assert not server.credentials.is_present
    save(contexts, "two", url="a", user="ann", password="old")
    given = read(context="two", password="new").credentials
    assert (given.user, given.password) == ("ann", "new")
    (server,) = read(context="two", servers="nats://bob:pw@h").servers
    assert server.credentials.user == "bob"
    assert not read(context="two", servers="nats://bob:pw@h").credentials.is_present


def test_a_token_that_repeats_the_user_is_no_contradiction(contexts: Path) -> None:
    save(contexts, "old", url="a", user="ann", token="ann", password="pw")
    assert read(context="old").credentials.user == "ann"
    assert read(context="old").credentials.token == ""
    save(contexts, "old", url="a", user="t0ken", token="t0ken")
    assert read(context="old").credentials.token == "t0ken"
    assert read(context="old").credentials.user == ""


def test_secrets_of_a_context_may_be_references(
    contexts: Path, tmp_path: Path, environment: Variables
) -> None:
    user, operator = jwts.key("user"), jwts.Operator()
    jwt = operator.user_jwt(user)
    path = jwts.creds(tmp_path / "ann.creds", jwt, user.seed)
    environment["KEYS"] = str(tmp_path)
    environment["ANN"] = path.read_text()
    environment["ANN_TOKEN"] = "t0ken"
    data = base64.b64encode(path.read_bytes()).decode()
    for creds in (f"file://{path}", "$KEYS/ann.creds", "env://ANN", f"data:;base64,{data}"):
        save(contexts, "ref", url="a", creds=creds)
        assert read(context="ref").credentials.jwt == jwt
    save(contexts, "ref", url="a", token="env://ANN_TOKEN")
    assert read(context="ref").credentials.token == "t0ken"
    save(contexts, "ref", url="a", user_jwt=jwt, user_seed=user.seed)
    assert read(context="ref").credentials.seed == user.seed
    # A password may look like a reference and be none.
    save(contexts, "ref", url="a", user="ann", password="x:y")
    assert read(context="ref").credentials.password == "x:y"


def test_contexts_that_can_not_be_served_say_what_is_missing(contexts: Path) -> None:
    def text(**fields: Any) -> str:
        save(contexts, "prod", **{"url": "a", **fields})
        with pytest.raises(OptionError) as raised:
            read(context="prod")
        return str(raised.value)

    assert 'field "nsc"' in text(nsc="nsc://op/acc/user")
    assert "nsc generate creds" in text(nsc="nsc://op/acc/user")
    assert "1Password" in text(creds="op://vault/item")
    assert "kept by nsc" in text(creds="nsc://op/acc/user")
    assert 'field "socks_proxy"' in text(socks_proxy="h:1080")
    assert 'field "windows_cert_store"' in text(windows_cert_store="user")
    assert 'variable "NOBODY_SET_THIS" is not set' in text(token="env://NOBODY_SET_THIS")
    assert "is not base64" in text(creds="data:;base64,!")
    assert 'field "user" of context "prod" and field "nkey" of context "prod"' in text(
        user="ann", nkey="f"
    )
    assert 'field "url" of context "prod" names "h:x"' in text(url="h:x")
    assert 'context "prod" has no "url"' in text(url="")
    assert 'field "user" of context "prod" is no string' in text(user=7)
    assert 'field "creds" of context "prod" names "/missing"' in text(creds="/missing")
    assert 'field "user_jwt" of context "prod" holds a JWT and no seed' in text(
        user_jwt=jwts.Operator().user_jwt(jwts.key("user"))
    )


def test_a_context_that_is_not_there_names_the_nearest(contexts: Path) -> None:
    save(contexts, "production", url="a")
    text = refused(context="prodution")
    assert 'no context "prodution"' in text
    assert 'Did you mean "production"?' in text
    (contexts / "odd.json").write_text("{")
    assert "can't be read" in refused(context="odd")
    (contexts / "odd.json").write_text("[]")
    assert "no JSON object" in refused(context="odd")
    assert "no name of a context" in refused(context="..")


def test_source_and_sink_know_these_options(contexts: Path) -> None:
    save(contexts, "prod", url="a")
    given = {"context": "prod", "stream": "S", "token": "t", "INBOXPREFIX": "_I"}
    assert source_options.source_options(given).connection.inbox_prefix == "_I"
    assert sink_options.sink_options({**given, "subject": "s"}).connection.credentials.token == "t"
    text = refused(nkeySeeds="S")
    assert 'Did you mean "nkeySeed"?' in text
