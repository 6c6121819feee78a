"""Where settings come from, and what is said when one is wrong."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from tocsin.errors import SettingsError
from tocsin.settings import Settings, check_server, load, renewed

SECRET = "whsec_" + b64encode(b"s" * 32).decode()
OTHER = "whsec_" + b64encode(b"o" * 32).decode()


def test_nothing_given_means_defaults(tmp_path: Path) -> None:
    assert load({}, {}, directory=tmp_path) == Settings()


def test_option_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_text('port = 1\nlanes = 2\nhost = "::1"\n')
    settings = load({"port": "3"}, {"TOCSIN_PORT": "4", "TOCSIN_LANES": "5"}, directory=tmp_path)
    assert (settings.port, settings.lanes, settings.host, settings.store) == (3, 5, "::1", "sqlite:///tocsin.db")
    assert settings.sources["port"] == "--port"
    assert settings.sources["lanes"] == "TOCSIN_LANES"
    assert settings.sources["host"] == f"host in {tmp_path / 'tocsin.toml'}"
    assert settings.sources["store"] == "default"


def test_empty_variable_counts_as_not_given(tmp_path: Path) -> None:
    assert load({}, {"TOCSIN_PORT": "", "TOCSIN_ORIGIN_URL": " "}, directory=tmp_path) == Settings()


def test_named_config_is_read_instead_of_the_default_one(tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_text("port = 1")
    (tmp_path / "other.toml").write_text("port = 2")
    assert load({"config": "other.toml"}, {}, directory=tmp_path).port == 2
    assert load({}, {"TOCSIN_CONFIG": "other.toml"}, directory=tmp_path).port == 2


@pytest.mark.parametrize(
    ("options", "environ", "words"),
    [
        ({"config": "absent.toml"}, {}, "--config: there is no file"),
        ({}, {"TOCSIN_CONFIG": "absent.toml"}, "TOCSIN_CONFIG: there is no file"),
        ({"port": "http"}, {}, "--port must be a whole number 0..65535, like 8321, not 'http'"),
        ({}, {"TOCSIN_PORT": "65536"}, "TOCSIN_PORT must be a whole number 0..65535"),
        ({}, {"TOCSIN_PORT": "٣"}, "TOCSIN_PORT must be a whole number"),
        ({}, {"TOCSIN_LANES": "0"}, "TOCSIN_LANES must be a whole number 1..100000"),
        ({}, {"TOCSIN_MAX_IN_FLIGHT": "-1"}, "TOCSIN_MAX_IN_FLIGHT must be a whole number"),
        ({}, {"TOCSIN_TIMEOUT_MS": "999"}, "TOCSIN_TIMEOUT_MS must be a whole number 1000..3600000, like 60000"),
        ({"timeout_ms": "15m"}, {}, "--timeout-ms must be a whole number 1000..3600000"),
        ({}, {"TOCSIN_STORE": "jobs.db"}, "TOCSIN_STORE must be a store URL like sqlite:///tocsin.db"),
        ({}, {"TOCSIN_ORIGIN_URL": "app.example"}, "TOCSIN_ORIGIN_URL must be a URL like https://app.example"),
        ({}, {"TOCSIN_ORIGIN_URL": "https://a:99999"}, "TOCSIN_ORIGIN_URL must be a URL"),
        ({}, {"TOCSIN_ORIGIN_URL": "https://a.example/_tocsin/callback"}, "TOCSIN_CALLBACK_PATH"),
        ({}, {"TOCSIN_ORIGIN_URL": "https://me:hush@a.example"}, "must not hold a user or password"),
        ({}, {"TOCSIN_CALLBACK_PATH": "hook"}, "TOCSIN_CALLBACK_PATH must be a path like /_tocsin/callback"),
        ({}, {"TOCSIN_INSECURE": "perhaps"}, "TOCSIN_INSECURE must be true or false, not 'perhaps'"),
        ({}, {"TOCSIN_HEARTBEAT_URL": "hc.example/x"}, "TOCSIN_HEARTBEAT_URL must be a URL like https://hc.example"),
        ({}, {"TOCSIN_HEARTBEAT_URL": "https://me:hush@a.example"}, "must not hold a user or password"),
        ({}, {"TOCSIN_SECRETS": "short"}, "TOCSIN_SECRETS: a secret has 5 bytes, at least 24 are needed"),
        ({}, {"TOCSIN_SECRETS": "whsec_***"}, "TOCSIN_SECRETS: a secret must continue in base64"),
        ({}, {"TOCSIN_SECRETS": f"{SECRET},whsec_AAAA"}, "TOCSIN_SECRETS: secret 2 of 2 has 3 bytes"),
        ({}, {"TOCSIN_ALLOW_URLS": "https://*/"}, "TOCSIN_ALLOW_URLS"),
        ({}, {"TOCSIN_URL_NETWORKS": "10.0.0.1/8"}, "TOCSIN_URL_NETWORKS must hold networks like 10.1.0.0/16"),
        ({}, {"TOCSIN_URL_SECRETS": "short"}, "TOCSIN_URL_SECRETS: a secret has 5 bytes, at least 24 are needed"),
        ({}, {"TOCSIN_TOKENS": "hush"}, "TOCSIN_TOKENS: number 1 of 1 must look like name:scope+scope"),
        ({}, {"TOCSIN_TOKENS": "a:all:hush"}, "TOCSIN_TOKENS: number 1 of 1: unknown scope 'all'; choose from read"),
        ({}, {"TOCSIN_SECRETS_FILE": "absent"}, "TOCSIN_SECRETS_FILE: "),
        ({"tokens_file": "absent"}, {}, "--tokens-file: "),
    ],
)
def test_wrong_setting_is_named_as_it_was_written(
    tmp_path: Path, options: dict[str, str], environ: dict[str, str], words: str
) -> None:
    with pytest.raises(SettingsError) as error:
        load(options, environ, directory=tmp_path)
    assert words in str(error.value)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "unknown setting 'prot'; choose from allow_urls, ca_file, callback_path"),
        ("port = ", "is not TOML"),
        ("port = true", "must be a whole number"),
        ("secrets = 7", "must be a list of texts"),
        ("secrets = [7]", "must hold texts only"),
        ("insecure = 1", "must be true or false"),
    ],
)
def test_wrong_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "tocsin.toml").write_text(text)
    with pytest.raises(SettingsError) as error:
        load({}, {}, directory=tmp_path)
    assert words in str(error.value)
    assert "tocsin.toml" in str(error.value)


def test_secrets_are_split_at_commas_and_lines_and_the_first_stays_first(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{SECRET}\n\n {OTHER} \n")
    assert load({}, {"TOCSIN_SECRETS": f"{SECRET}, {OTHER}"}, directory=tmp_path).secrets == (SECRET, OTHER)
    assert load({"secrets_file": "keys"}, {}, directory=tmp_path).secrets == (SECRET, OTHER)


def test_secrets_file_of_the_environment_wins_over_secrets_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_text(f'secrets = ["{OTHER}"]')
    (tmp_path / "keys").write_text(SECRET)
    assert load({}, {"TOCSIN_SECRETS_FILE": "keys"}, directory=tmp_path).secrets == (SECRET,)


def test_file_named_in_a_config_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "t.toml").write_text('secrets_file = "keys"')
    (tmp_path / "etc" / "keys").write_text(SECRET)
    assert load({"config": "etc/t.toml"}, {}, directory=tmp_path).secrets == (SECRET,)


def test_secrets_and_their_file_in_one_place_are_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(SECRET)
    environ = {"TOCSIN_SECRETS": SECRET, "TOCSIN_SECRETS_FILE": "keys"}
    with pytest.raises(SettingsError, match="TOCSIN_SECRETS and TOCSIN_SECRETS_FILE are both given"):
        load({}, environ, directory=tmp_path)


def test_empty_secrets_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n")
    with pytest.raises(SettingsError, match="is empty"):
        load({"secrets_file": "keys"}, {}, directory=tmp_path)


def test_secrets_tokens_and_passwords_are_never_shown(tmp_path: Path) -> None:
    environ = {
        "TOCSIN_SECRETS": SECRET,
        "TOCSIN_TOKENS": "ops:admin:hush-hush",
        "TOCSIN_STORE": "postgresql://me:hush@db/jobs",
    }
    settings = load({}, environ, directory=tmp_path)
    shown = f"{settings.shown()} {settings.shown_store} {settings!r}"
    assert "hush" not in shown
    assert SECRET not in shown
    assert settings.shown_store == "postgresql://me@db/jobs"
    assert settings.shown()["secrets"] == "(1 given)"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_may_be_served_without_tokens(host: str) -> None:
    check_server(Settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "app.example"])
def test_other_machines_are_not_served_without_tokens(host: str) -> None:
    with pytest.raises(SettingsError, match="TOCSIN_TOKENS"):
        check_server(Settings(host=host))
    check_server(Settings(host=host, tokens=("ops:admin:secret",)))


def test_limits_of_health_come_from_a_variable_or_a_table(tmp_path: Path) -> None:
    def limits(text: str) -> object:
        return load({}, {"TOCSIN_HEALTH_LIMITS": text}, directory=tmp_path).health_limits

    assert limits(" late_s = 600, deaths=500 ") == {"late_s": 600, "deaths": 500}
    for wrong in ("late_s", "late_s=", "late_s=-5", "late_s=1,late_s=2", "late_s=1.5", "late=5", "late_s=0"):
        with pytest.raises(SettingsError, match=r"^TOCSIN_HEALTH_LIMITS"):
            limits(wrong)
    (tmp_path / "tocsin.toml").write_text("health_limits = { late_s = 600 }\n")
    assert load({}, {}, directory=tmp_path).health_limits == {"late_s": 600}
    (tmp_path / "tocsin.toml").write_text("health_limits = 600\n")
    with pytest.raises(SettingsError, match=r"health_limits in .* must be a table"):
        load({}, {}, directory=tmp_path)


def test_a_heartbeat_url_is_shown_without_its_path(tmp_path: Path) -> None:
    url = "https://hc.example:8443/5f3c-private?token=hidden"
    settings = load({}, {"TOCSIN_HEARTBEAT_URL": url}, directory=tmp_path)

    assert settings.heartbeat_url == url
    assert settings.shown()["heartbeat_url"] == "https://hc.example:8443/..."
    assert "private" not in repr(settings) and "hidden" not in repr(settings)
    assert load({}, {}, directory=tmp_path).shown()["heartbeat_url"] is None


def test_origins_come_from_tables_of_the_file_and_their_secrets_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_text(
        '[origins.billing]\nurl = "https://billing.example/"\nmax_in_flight = 4\n'
        f'secrets = ["{SECRET}", "{OTHER}"]\n[origins.crm]\nurl = "https://crm.example"\ncallback_path = "/in"\n'
    )
    settings = load({}, {"TOCSIN_ORIGIN_SECRETS": f"crm={OTHER}"}, directory=tmp_path)
    assert settings.origins == {
        "billing": {"url": "https://billing.example", "max_in_flight": 4},
        "crm": {"url": "https://crm.example", "callback_path": "/in"},
    }
    assert (settings.secrets_to("billing"), settings.secrets_to("crm")) == ((SECRET, OTHER), (OTHER,))
    assert settings.shown()["origin_secrets"] == "(3 given)"
    assert SECRET not in repr(settings) and OTHER not in repr(settings)


def test_origins_and_their_secrets_come_from_the_environment_or_a_file_of_secrets(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"billing={SECRET}\nbilling={OTHER}\n")
    named = {"TOCSIN_ORIGINS": "billing=https://billing.example"}
    settings = load({}, named | {"TOCSIN_ORIGIN_SECRETS_FILE": "keys"}, directory=tmp_path)
    assert settings.secrets_to("billing") == (SECRET, OTHER)
    assert settings.sources["origin_secrets"] == "TOCSIN_ORIGIN_SECRETS_FILE"
    (tmp_path / "keys").write_text(f"billing={OTHER}\n")
    read = load({}, named | {"TOCSIN_ORIGIN_SECRETS_FILE": "keys"}, directory=tmp_path)
    assert renewed(settings, read).secrets_to("billing") == (OTHER,)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"TOCSIN_ORIGINS": "billing"}, "TOCSIN_ORIGINS must be like billing=https://billing.example crm="),
        ({"TOCSIN_ORIGINS": "url=https://a.example"}, "TOCSIN_ORIGINS: the name 'url' is the system's"),
        ({"TOCSIN_ORIGINS": "a/b=https://a.example"}, "TOCSIN_ORIGINS: a name must match"),
        ({"TOCSIN_ORIGINS": "a=ftp://a.example"}, "TOCSIN_ORIGINS: a.url must be a URL like"),
        ({"TOCSIN_ORIGIN_SECRETS": SECRET}, "TOCSIN_ORIGIN_SECRETS: entry 1 must be like billing=whsec_..."),
        ({"TOCSIN_ORIGIN_SECRETS": "a=whsec_c2hvcnQ="}, "TOCSIN_ORIGIN_SECRETS: a: "),
        ({"TOCSIN_ORIGIN_SECRETS": f"b={SECRET}"}, "TOCSIN_ORIGIN_SECRETS: there is no origin 'b'"),
        ({"TOCSIN_COOL_ON_RETRY_AFTER": "pool"}, "TOCSIN_COOL_ON_RETRY_AFTER must be none or origin, not 'pool'"),
    ],
)
def test_wrong_origins_are_refused_without_their_secrets(tmp_path: Path, environ: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({}, environ, directory=tmp_path)
    assert words in str(caught.value) and SECRET.removeprefix("whsec_") not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[origins]\nbilling = 7", "must be a table of tables"),
        ("[origins.billing]", "billing needs a url"),
        ('[origins.billing]\nurl = "https://a.example"\ntimeout = 3', "billing: unknown setting 'timeout'"),
        ('[origins.billing]\nurl = "https://a.example"\nmax_in_flight = 0', "max_in_flight must be a whole number"),
        ('[origins.billing]\nurl = "https://a.example"\nsecrets = "hush"', "billing.secrets: "),
    ],
)
def test_a_wrong_table_of_an_origin_is_named(tmp_path: Path, table: str, words: str) -> None:
    (tmp_path / "tocsin.toml").write_text(table)
    with pytest.raises(SettingsError, match=words) as caught:
        load({}, {}, directory=tmp_path)
    assert "hush" not in str(caught.value)
