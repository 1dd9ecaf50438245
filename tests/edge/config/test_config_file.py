from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from edge.config import load
from edge.config.annotated_file import reasons, render
from edge.config.load import ARRAYS, SECTIONS, Address, Config
from edge.config.options import AccessRule, Gateway, Readings, Section
from edge.errors import ConfigError

DOMAIN = '[gateway]\ndomain = "gw.example"\n'
OPTIONS = [
    (section, field.name)
    for section, kind in SECTIONS.items()
    for field in msgspec.structs.fields(kind)
]


def parse(text: str) -> Config:
    return load.parse(text.encode())


def test_domain_is_the_only_required_option() -> None:
    settings = parse(DOMAIN)
    assert settings == Config(gateway=Gateway(domain="gw.example"))
    assert settings.listen == (Address("127.0.0.1", 5222),)
    assert settings.listen_tls == (Address("127.0.0.1", 5223),)
    assert settings.xmpp.require_tls is True
    assert settings.uplink.enrolment == ""


def test_written_file_has_the_defaults() -> None:
    text = render("gw.example")
    rule = AccessRule(device="*", publish=["%u/#"], subscribe=["#"])
    assert parse(text) == replace(parse(DOMAIN), access=[rule])
    any_port = parse(render("gw.example", "[::1]:0"))
    assert any_port.listen == any_port.listen_tls == (Address("::1", 0),)
    assert parse(render("gw.example", "[::1]:5322")).listen_tls == (Address("::1", 5323),)
    both = parse(render("gw.example", "192.0.2.1:5222", "[::]:5222"))
    assert both.listen == (Address("192.0.2.1", 5222), Address("::", 5222))
    assert both.listen_tls == (Address("192.0.2.1", 5223), Address("::", 5223))


def test_written_file_explains_every_option() -> None:
    text = render("gw.example")
    written = tomllib.loads(text)
    assert [(name, option) for name in SECTIONS for option in written.pop(name)] == OPTIONS
    assert list(written) == [name for name, kind in ARRAYS.items() if kind.is_initial]
    assert max(map(len, text.splitlines())) <= 100
    blocks = re.findall(r"((?:^# .+\n)+)^(\w+) = (.+)$", text, re.MULTILINE)
    assert [name for _, name, _ in blocks] == [name for _, name in OPTIONS]
    for comment, name, value in blocks[1:]:
        assert comment.replace("\n# ", " ").endswith(f" Default: {value}.\n"), name


@pytest.mark.parametrize("kind", SECTIONS.values())
def test_every_number_has_a_unit_and_a_bound_and_every_heading_an_option(
    kind: type[Section],
) -> None:
    fields, texts = msgspec.structs.fields(kind), reasons(kind)
    assert next(iter(kind.headings)) == fields[0].name
    assert kind.headings.keys() <= {field.name for field in fields}
    for field in fields:
        (meta,) = field.type.__metadata__
        assert texts[field.name].endswith(".")
        if field.type.__origin__ in (int, float):
            assert meta.extra["unit"], field.name
            assert meta.ge is not None or meta.gt is not None, field.name


@pytest.mark.parametrize("name", ARRAYS)
def test_written_file_shows_a_valid_example_of_each_array(name: str) -> None:
    kind, text = ARRAYS[name], render("gw.example")
    if kind.is_initial:
        assert [dict(kind.example)] == tomllib.loads(text)[name]
        return
    _, example = text.split(f"# [[{name}]]\n")
    options = re.match("(?:# .+\n)+", example)
    assert options
    array = f"[[{name}]]\n{options[0].replace('# ', '')}"
    (written,) = getattr(parse(f"{text}\n{array}"), name)
    assert written == msgspec.convert(kind.example, kind)
    for field in msgspec.structs.fields(kind):
        assert re.search(rf"^# {field.name}: .+\n(# .+\n)*", text, re.MULTILINE), field.name
        assert reasons(kind)[field.name].endswith(".")


@pytest.mark.parametrize("section", SECTIONS)
def test_unknown_option_is_refused_by_name(section: str) -> None:
    text = DOMAIN if section == "gateway" else f"{DOMAIN}[{section}]\n"
    with pytest.raises(ConfigError, match=rf"^{section}\.heldttl: there is no such option"):
        parse(f"{text}heldttl = 1\n")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("limits.sessions", "0"), ("limits.sessions", '"many"'), ("limits.sessions", "1.5"),
        ("limits.sessions", "1000000000000001"), ("limits.held_ttl", "0"),
        ("limits.held_ttl", "-1.0"), ("limits.held_ttl", "inf"), ("limits.held_ttl", "nan"),
        ("limits.refusal_window", "nan"), ("limits.held_bytes", "65535"),
        *(("mqtt.anonymous", value) for value in ("'Old'", "'a b'", "'a@gw.example'", "'a/b'")),
        ("mqtt.keep_alive", "0"), ("mqtt.keep_alive", "65536"),
        ("limits.stanza_bytes", "1048577"), ("xmpp.require_tls", "1"), ("xmpp.listen", "5222"),
        ("uplink.heartbeat", "61"), ("uplink.heartbeat", "nan"), ("uplink.segment_age", "inf"),
        ("uplink.segment_events", "65537"), ("uplink.bandwidth", "2047"),
        ("uplink.live_share", "1.0"),
    ],
)  # fmt: skip
def test_invalid_value_is_refused_by_the_name_of_its_option(option: str, value: str) -> None:
    section, name = option.split(".")
    with pytest.raises(ConfigError, match=re.escape(option)):
        parse(f"{DOMAIN}[{section}]\n{name} = {value}\n")


@pytest.mark.parametrize(
    ("listen", "good"),
    [
        ("127.0.0.1:0", True), ("127.9.9.9:0", True), ("[::1]:0", True), ("localhost:0", True),
        ("0.0.0.0:0", False), ("[::]:0", False), ("192.0.2.1:0", False), ("gw.example:0", False),
        ("localhost.example:0", False),
    ],
)  # fmt: skip
def test_tls_is_optional_on_loopback_only(listen: str, good: bool) -> None:
    text = f"{DOMAIN}[xmpp]\nlisten = '{listen}'\nrequire_tls = "
    assert parse(f"{text}true\n").xmpp.require_tls
    if good:
        assert not parse(f"{text}false\n").xmpp.require_tls
    else:
        with pytest.raises(ConfigError, match=r"xmpp\.require_tls.*xmpp\.listen"):
            parse(f"{text}false\n")


@pytest.mark.parametrize("option", ["listen", "listen_ws"])
def test_tls_of_mqtt_is_optional_on_loopback_only(option: str) -> None:
    text = f"{DOMAIN}[mqtt]\nrequire_tls = false\n{option} = "
    assert parse(f"{text}'127.0.0.1:1883'\n").has_mqtt
    with pytest.raises(ConfigError, match=rf"mqtt\.require_tls.*mqtt\.{option}"):
        parse(f"{text}['127.0.0.1:1883', '0.0.0.0:1883']\n")


def test_limits_must_fit_into_the_database() -> None:
    mib = 1024 * 1024
    sizes = {"held": 5, "offline_total": 1, "dead": 3, "backlog": 7, "recent": 2, "outbox": 4}
    text = f"{DOMAIN}[limits]\n"
    text += "".join(f"{name}_bytes = {size * mib}\n" for name, size in sizes.items())
    text += f"outbox_bytes_per_source = {mib}\ndatabase_reserve = {mib}\n"
    settings = parse(f"{text}database_bytes = {27 * mib}\n")
    assert settings.limits.database_bytes == 27 * mib
    with pytest.raises(ConfigError, match=r"limits\.database_bytes is 28311551.*need 28311552"):
        parse(f"{text}database_bytes = {27 * mib - 1}\n")
    with_mqtt = f"will_bytes = {mib}\n[mqtt]\nlisten_tls = '127.0.0.1:8883'\n"
    assert parse(f"{text}database_bytes = {28 * mib}\n{with_mqtt}").has_mqtt
    with pytest.raises(ConfigError, match=r"will_bytes and.*need 29360128"):
        parse(f"{text}database_bytes = {28 * mib - 1}\n{with_mqtt}")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("listen = ''\nlisten_tls = []", "are all empty"),
        ("component = '127.0.0.1:5347'\nlisten = ''\nlisten_tls = ''", "component_secret"),
        ("component = '127.0.0.1:5347'\ncomponent_secret = 's'", "listen_tls must be empty"),
        ("component = 'here'\nlisten = ''\nlisten_tls = ''", "'here' is not HOST:PORT"),
        ("trusted_domains = ['No Domain']", "domain 'No Domain'"),
        ("listen = ['127.0.0.1:1', 'x']", "'x' is not HOST:PORT"),
        ("listen = ['127.0.0.1:1', '10.0.0.1:1']\nrequire_tls = false", "a loopback address"),
        ("trust = 'all'", r"xmpp\.trust"),
    ],
)
def test_contradictory_listeners_are_refused(options: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse(f"{DOMAIN}[xmpp]\n{options}\n")


def test_listeners_may_have_several_addresses_or_none() -> None:
    settings = parse(f"{DOMAIN}[xmpp]\nlisten = ['127.0.0.1:1', '[::1]:1']\nlisten_tls = ''\n")
    assert settings.listen == (Address("127.0.0.1", 1), Address("::1", 1))
    assert settings.listen_tls == ()
    text = f"{DOMAIN}[xmpp]\nlisten = ''\nlisten_tls = ''\ncomponent = '[::1]:5347'\n"
    settings = parse(f"{text}component_secret = 'secret'\n")
    assert settings.component == Address("::1", 5347)


COMPONENT = (
    "[xmpp]\nlisten = ''\nlisten_tls = ''\ncomponent = '[::1]:5347'\ncomponent_secret = 's'\n"
)


@pytest.mark.parametrize(
    "jid",
    [
        "", "olga", "gw.example", "@gw.example", "olga@", "olga@other.example", "Olga@gw.example",
        "olga@gw.example/phone", "ol ga@gw.example", "olga@x@gw.example", "olga@GW.example",
    ],
)  # fmt: skip
def test_notified_accounts_belong_to_the_gateway(jid: str) -> None:
    good = "['olga@gw.example', 'jürg.o+x@gw.example']"
    assert len(parse(f"{DOMAIN}[log]\nnotify = {good}\n").log.notify) == 2
    with pytest.raises(ConfigError, match=rf"log\.notify: '{jid}'"):
        parse(f"{DOMAIN}[log]\nnotify = ['olga@gw.example', '{jid}']\n")


@pytest.mark.parametrize("jid", ["olga@gw.example", "olga@", "olga", "olga@-.example", "o/@x.y"])
def test_component_notifies_accounts_of_other_domains(jid: str) -> None:
    assert parse(f"{DOMAIN}{COMPONENT}[log]\nnotify = ['olga@users.example']\n").log.notify
    with pytest.raises(ConfigError, match=rf"log\.notify: '{jid}'"):
        parse(f"{DOMAIN}{COMPONENT}[log]\nnotify = ['{jid}']\n")


def test_examples_in_the_guides_are_valid() -> None:
    guides = (Path(__file__).parents[3] / "docs" / "how-to").glob("*.md")
    text = "".join(guide.read_text("utf-8") for guide in guides)
    examples = re.findall(r"```toml\n(.+?)```", text, re.DOTALL)
    assert len(examples) >= 5
    for example in examples:
        parse(DOMAIN + example)


@pytest.mark.parametrize(
    "name", ["", "gw:9105", "GW1", "*", "*.example", "gw.", "a b", "http://gw", "[::1]", "a" * 64]
)
def test_invalid_name_of_the_status_page_is_refused(name: str) -> None:
    names = [f"gw{number}.site.example" for number in range(16)]
    assert parse(f"{DOMAIN}[web]\nnames = {names}\n").web.names == names
    problem = f"web.names: {name!r} is not a host name in lower-case letters, digits, '-' and '.', "
    with pytest.raises(ConfigError, match=f"^{re.escape(problem)}without a port$"):
        parse(f"{DOMAIN}[web]\nnames = ['gw1', {name!r}]\n")


def test_names_of_the_gateway() -> None:
    names = ["gw1.local", "192.168.1.10", "fd00::1"]
    assert parse(f"{DOMAIN}names = {names}\n").gateway.names == names
    with pytest.raises(ConfigError, match=r"^gateway\.names: domain 'gw1:8883' is not a domain"):
        parse(f"{DOMAIN}names = ['gw1:8883']\n")
    with pytest.raises(ConfigError, match=r"^gateway\.names: write 'FD00::0:1' as 'fd00::1'"):
        parse(f"{DOMAIN}names = ['FD00::0:1']\n")


@pytest.mark.parametrize("option", ["pubsub]\nauto_create", "uplink]\ntopics"])
def test_invalid_topic_filter_is_refused(option: str) -> None:
    name = option.replace("]\n", ".")
    good = parse(f"{DOMAIN}[{option} = ['plant/+/temp', 'meters/#', 'one']\n")
    assert len([*good.pubsub.auto_create, *good.uplink.topics]) == 3
    with pytest.raises(ConfigError, match=rf"{name}: 'a/#/b': # must be the last level"):
        parse(f"{DOMAIN}[{option} = ['plant/+', 'a/#/b']\n")
    with pytest.raises(ConfigError, match=rf"{name}: '': a filter must not be empty"):
        parse(f"{DOMAIN}[{option} = ['']\n")


def test_uplink_topics_are_limited() -> None:
    topics = [f"n{number}" for number in range(101)]
    assert parse(f"{DOMAIN}[uplink]\ntopics = {topics[1:]}\n").uplink.topics == topics[1:]
    with pytest.raises(ConfigError, match=r"uplink\.topics"):
        parse(f"{DOMAIN}[uplink]\ntopics = {topics}\n")


@pytest.mark.parametrize("option", ["uplink.topics", "pubsub.auto_create"])
def test_component_has_no_nodes(option: str) -> None:
    section, _, name = option.partition(".")
    with pytest.raises(ConfigError, match=rf"{option} must be empty, because a component"):
        parse(f"{DOMAIN}{COMPONENT}[{section}]\n{name} = ['plant/#']\n")
    with pytest.raises(ConfigError, match="access must be empty, because a component"):
        parse(f"{DOMAIN}{COMPONENT}[[access]]\ndevice = '*'\n")


def rule(options: str, filter: str = "plant/+/temp") -> str:
    return f"[[readings]]\nfilter = '{filter}'\n{options}\n"


ACCESS: Final = f"{DOMAIN}[[access]]\ndevice = 'pump?'\npublish = ['%u/+']\n"


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("device = 'a'\npublish = ['a/#/b']", ".publish: 'a/#/b': # must be the last level"),
        ("device = 'a'\nsubscribe = ['']", ".subscribe: '': a filter must not be empty"),
        ("device = 'a'\nsubscribe = 1", ".subscribe: it is 1, but must be a list"),
        ("device = 'a'\nread = []", ".read: there is no such option"),
        ("publish = []", ".device: it is missing"),
        ("device = ''", ".device: '' is not the name of a device"),
        ("device = 'Pump1'", ".device: 'Pump1' is not the name of a device in lower-case"),
        ("device = 'a@gw.example'", ".device: 'a@gw.example' is not the name of a device"),
    ],
)
def test_an_invalid_access_rule_is_refused_by_its_number(rule: str, problem: str) -> None:
    assert parse(ACCESS).access == [AccessRule(device="pump?", publish=["%u/+"])]
    with pytest.raises(ConfigError, match=f"^{re.escape('access[2]' + problem)}"):
        parse(f"{ACCESS}[[access]]\n{rule}\n")


def test_access_rules_are_limited() -> None:
    text = "[[access]]\ndevice = '*'\n"
    assert len(parse(DOMAIN + 1000 * text).access) == 1000
    with pytest.raises(ConfigError, match=r"^access: there are 1001 tables, but at most 1000"):
        parse(DOMAIN + 1001 * text)
    filters = [f"n{number}" for number in range(101)]
    assert len(parse(f"{DOMAIN}{text}publish = {filters[1:]}\n").access[0].publish) == 100
    with pytest.raises(ConfigError, match=r"^access\[1\]\.publish: .* at most 100 entries"):
        parse(f"{DOMAIN}{text}publish = {filters}\n")


def test_readings_have_defaults_and_an_order() -> None:
    settings = parse(DOMAIN + rule("") + rule("name = '%2 %%'\nunit = 'Cel'", "a/#"))
    first, second = settings.readings
    assert first == Readings(filter="plant/+/temp")
    assert (first.fields, first.name, first.unit, first.time) == ([], "%f", "", "timestamp")
    assert (second.filter, second.name, second.unit) == ("a/#", "%2 %%", "Cel")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (rule("", "a/#/b"), "[1].filter: 'a/#/b': # must be the last level of a filter"),
        (rule("") + rule(""), "[2].filter: readings[1] has the same filter and applies"),
        (rule("", "a") + rule("name = ''"), "[2].name: it must not be empty"),
        (rule("name = '%2/%t'"), "[1].name: '%t' is not one of %1 to %9, %f and %%"),
        (rule("name = '50 %'"), "[1].name: '%' is not one of"),
        (rule("name = '%4'"), "[1].name: 'plant/+/temp' has 3 levels, and no level 4"),
        (rule("name = '%%4%0'"), "[1].name: '%0' is not one of"),
        (rule("name = '%1'\nfields = ['a', 'b']"), "[1].name: without %f, all fields would have"),
        (rule("fields = ['']"), "[1].fields: a path must not be empty"),
        (rule("fields = ['a']\nunit = {ab = 'W'}"), "[1].unit: 'ab' is not in readings[1].fields"),
        (rule("") * 101, ": there are 101 tables, but at most 100 are allowed"),
        ("[readings]\nfilter = 'a'\n", ": each must be a table that begins with [[readings]]"),
        ("[[readings]]\nname = '%f'\n", "[1].filter: it is missing"),
        (rule("unit = 5"), "[1].unit: it is 5, but must be a string or a table of strings"),
        (COMPONENT + rule(""), " must be empty, because a component has no nodes"),
    ],
)
def test_mistake_in_a_rule_for_readings_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"readings{problem}")):
        parse(DOMAIN + text)


@pytest.mark.parametrize(
    "options",
    ["name = '%9/%1%%%f'\nfields = ['a', 'b']", "fields = ['a']\nunit = {'a.b' = 'W', a = 'V'}"],
)
def test_rule_for_readings_is_accepted(options: str) -> None:
    assert parse(DOMAIN + rule(options, "a/#")).readings


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:5222", Address("127.0.0.1", 5222)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),  # noqa: S104 - an address to be read
        ("[::1]:65535", Address("::1", 65535)),
        ("[::ffff:127.0.0.1]:1", Address("::ffff:127.0.0.1", 1)),
        ("localhost:5222", Address("localhost", 5222)),
        ("gw-1.example:5222", Address("gw-1.example", 5222)),
    ],
)
def test_address_survives_a_round_trip(text: str, address: Address) -> None:
    assert load.parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "host", "host:", ":5222", "host:x", "host:65536", "host:123456", "::1:5222",
        "[::1]", "[host]:1", "host:5222;", "[::1:1", "host:-1", "host:\uff11", "[::1]:5222x",
        "ho st:1", "host:5222 ",
    ],
)  # fmt: skip
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        load.parse_address(text)
    if not text:
        return  # an empty option disables the listener
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        parse(f"{DOMAIN}[xmpp]\nlisten = {text!r}\n")


@pytest.mark.parametrize(
    "domain", ["gw", "gw.example", "a-1.b2.example", "xn--gw-1ma.example", "x" * 63, "0.example"]
)
def test_valid_domain_is_accepted(domain: str) -> None:
    assert load.check_domain(domain) == domain
    assert parse(render(domain)).gateway.domain == domain


@pytest.mark.parametrize(
    "domain",
    [
        "", ".", "gw.", ".gw", "gw..example", "GW.example", "gw_1", "-gw", "gw-", "gw/x", "a@gw",
        "../x", "gérard.example", "ab--c.example", "gw example", "gw\n", "x" * 64,
        ".".join(["x" * 60] * 5),
    ],
)  # fmt: skip
def test_invalid_domain_is_refused(domain: str) -> None:
    with pytest.raises(ConfigError, match="is not a domain"):
        load.check_domain(domain)


def test_strings_are_escaped() -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        parse(render("gw.example", 'a"b\\c:1 '))
    assert tomllib.loads(render("gw.example", 'a"b\\c:1'))["xmpp"]["listen"] == 'a"b\\c:1'


def test_errors_name_the_file_and_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / load.FILE_NAME
    with pytest.raises(ConfigError, match=r"fieldpost\.toml does not exist; create the gateway"):
        load.load(tmp_path)
    for text, problem in (
        (b"[limits]\nsessions = 0", "limits.sessions: it is 0, but must be an integer, at least 1"),
        (
            b'[gateway]\ndomain = "gw.example"\n[web]\nlisten = "x"',
            "web.listen: address 'x' is not",
        ),
        (b"\xff", "it is not UTF-8: byte 0 is 0xff"),
    ):
        path.write_bytes(text)
        with pytest.raises(ConfigError) as error:
            load.load(tmp_path)
        assert "\n" not in str(error.value)
        assert str(error.value).startswith(f"{path}: {problem}")
        assert str(error.value).endswith("; `fieldpost config check` lists all mistakes")
    path.write_text("[gateway]\ndomain = 'GW'\n")
    with pytest.raises(ConfigError, match=rf"{re.escape(str(path))}: domain 'GW'"):
        load.load(tmp_path)
    path.write_text(render("gw.example"))
    assert load.load(tmp_path).gateway.domain == "gw.example"
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load.load(tmp_path)
