"""A secret in a text that goes to the page, to mail or to a chat is told by its form, or what is around it.

Every secret here is made up, and put together from pieces, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import os
import resource
import time
import traceback
from urllib.parse import quote

import pytest

from streambank.driver.failure import HIDDEN, redacted, shown
from streambank.overview.plain import Plain
from tests.support.paths import ROOT

LOGS = ROOT / "tests" / "data" / "driver-logs"
WORD = "hunter2hunter2"
LONG = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5hJ7kL9nP1qR3tU5wX7zA9cD1eF3gH5jK7mN9"
HEX = "0123456789abcdef0123456789abcdef"
KEY = base64.b64encode(bytes(range(7, 250))).decode()
LINES = [KEY[at : at + 64] for at in range(0, len(KEY), 64)]
JWT = ".".join(
    base64.urlsafe_b64encode(one).decode().rstrip("=") for one in (b'{"alg":"HS256"}', b'{"sub":"ann"}')
)


def pem(kind: str, between: str = "\n") -> str:
    return between.join([f"-----BEGIN {kind}-----", *LINES, f"-----END {kind}-----"])


SECRETS = {
    "a cookie": (f"Cookie: JSESSIONID={WORD}; theme=dark", WORD),
    "a cookie that is set": (f"Set-Cookie: sid={WORD}; Path=/; HttpOnly", WORD),
    "a cookie of a header as Python shows it": (f"{{'Cookie': 'a=b; sid={WORD}', 'Accept': '*/*'}}", WORD),
    "a cookie in JSON": (f'{{"set-cookie": "sid={WORD}; Path=/"}}', WORD),
    "a variable of CGI": (f"HTTP_COOKIE=sid={WORD}", WORD),
    "a key in PEM": (pem("RSA PRIVATE KEY"), LINES[1]),
    "a key in PKCS8": (pem("PRIVATE KEY"), LINES[0]),
    "an encrypted key": (f"-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,12\n\n{KEY}\n", KEY[:64]),
    "a key of SSH": (pem("OPENSSH PRIVATE KEY"), LINES[2]),
    "a key of PGP": (pem("PGP PRIVATE KEY BLOCK"), LINES[2]),
    "a key in one line of JSON": (f'{{"private": "{pem("PRIVATE KEY", chr(92) + "n")}"}}', LINES[-1]),
    "a line of a key, as logs are shown": (LINES[1], LINES[1]),
    "a key that is cut off": ("-----BEGIN EC PRIVATE KEY-----\n" + KEY[:40], KEY[:40]),
    "a JWT": (f"got {JWT}.{LONG} from the server", LONG),
    "a JWT in an address": (f"https://h/x?jwt={JWT}.{LONG}", LONG),
    "a JWT behind a line break of JSON": (f"said\\n{JWT}.{LONG}", LONG),
    "GitHub": (f"clone failed: gh{'p_'}{LONG[:36]}", LONG[:36]),
    "GitHub, of an app": (f"gh{'s_'}{LONG[:36]} has expired", LONG[:36]),
    "GitHub, fine-grained": (f"github{'_pat_'}{LONG[:22]}_{LONG[:59]}", LONG[:22]),
    "GitLab": (f"gl{'pat-'}{LONG[:20]} is revoked", LONG[:20]),
    "GitLab, of a runner": (f"gl{'rt-'}{LONG[:20]}", LONG[:20]),
    "Slack": (f"xo{'xb-'}1234567890-1234567890-{LONG[:24]}", LONG[:24]),
    "Slack, of an app": (f"xa{'pp-'}1-A01-1234567890-{HEX}", HEX),
    "Slack, refreshed": (f"xo{'xe.xo'}xp-1-{LONG}", LONG),
    "Databricks": (f"403 for da{'pi'}{HEX}", HEX),
    "Databricks, of Azure": (f"da{'pi'}{HEX}-2", HEX),
    "SendGrid": (f"S{'G.'}{LONG[:22]}.{LONG[:43]}", LONG[:22]),
    "Google": (f"key AI{'za'}{LONG[:35]} is not valid", LONG[:35]),
    "Google, of a person": (f"ya{'29.'}a0{LONG}", LONG),
    "Google, of a client": (f"GOC{'SPX-'}{LONG[:28]}", LONG[:28]),
    "Vault": (f"hv{'s.'}{LONG[:24]}", LONG[:24]),
    "Vault, of a batch": (f"hv{'b.'}AAAA{LONG}", LONG),
    "Vault, before 1.10": (f"{'s.'}{LONG[:24]} may not", LONG[:24]),
    "Amazon": (f"AK{'IA'}ABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
    "curl": (f"curl -s -u ann:{WORD} https://h/x", WORD),
    "curl, in words": (f"curl --user ann:{WORD} https://h/x", WORD),
    "curl, in quotes": (f"curl -u 'ann:{WORD} x' https://h", WORD),
    "curl, as a list": (f"['curl', '-u', 'ann:{WORD}', 'https://h']", WORD),
    "curl, by a proxy": (f"curl --proxy-user ann:{WORD} https://h", WORD),
    "curl, a header": (f"curl -H 'Authorization: Token {WORD}' h", WORD),
    "no sign between": (f"cannot sign in with password {WORD}", WORD),
    "no sign, of a setting": (f"sasl.password {WORD}", WORD),
    "no sign, and letters alone": ("sasl.password swordfish\n", "swordfish"),
    "no sign, as Spark's defaults have it": ("spark.ssl.keyPassword     swordfish", "swordfish"),
    "no sign, and it begins like prose": ("sasl.password a-hunter", "a-hunter"),
    "no sign, with a verb": (f"the password is {WORD}", WORD),
    "no sign, a passphrase": ("passphrase correct-h0rse", "correct-h0rse"),
    "no sign, a token": (f"token {LONG[:40]} was refused", LONG[:40]),
    "digits alone": ("password 12345678 was refused", "12345678"),
    "a space of no width in the name": (f"pass\u200bword={WORD}", WORD),
    "a soft hyphen in the name": (f"pass\u00adword: {WORD}", WORD),
    "a space of no width before": (f"token\u200bgh{'p_'}{LONG[:36]}", LONG[:36]),
    "two in a text with one": (f"pass\u200bword={WORD} x\u200bgh{'p_'}{LONG[:36]}", LONG[:36]),
    "a joiner in the name": (f"api\u200d_key={WORD}", WORD),
    "colours of a terminal in the name": (f"pass\x1b[1mword\x1b[0m=\x1b[32m{WORD}", WORD),
    "a zero byte in the name": (f"pass\0word={WORD}", WORD),
    "JSON in JSON": (f'{{\\"password\\": \\"{WORD}\\"}}', WORD),
    "in the encoding of an address": (f"next=password%3D{WORD}", WORD),
    "a webhook, in the encoding of an address": (
        f"proxy?u={quote(f'https://hooks.slack.com/services/T0/B0/{WORD}', safe='')}",
        WORD,
    ),
    "a name of two words": (f"the API key: {WORD} was refused", WORD),
    "a name and a sign": (f"password={WORD}", WORD),
    "an address": (f"jdbc:postgresql://ann:{WORD}@db/x", WORD),
    "a bearer": (f"Bearer {WORD}", WORD),
    "an argument": (f"--db-password {WORD}", WORD),
    "a bearer in small letters": (f"bearer {WORD}", WORD),
    "a bearer in capitals": (f"BEARER {WORD}", WORD),
    "mysql": (f"mysql -u ann -p{WORD} orders", WORD),
    "mysql, as a list": (f"['mysqldump', '-p{WORD}', 'orders']", WORD),
    "a pair in JSON in JSON": (f'[\\"password\\", \\"{WORD}\\"]', WORD),
    "npm": (f"401 for np{'m_'}{LONG[:36]}", LONG[:36]),
    "PyPI": (f"py{'pi-'}AgEIcHlwaS5vcmc{LONG}", LONG),
    "OpenAI": (f"invalid key s{'k-'}{LONG[:48]}", LONG[:48]),
    "OpenAI, of a project": (f"s{'k-'}proj-{LONG[:24]}_{LONG[24:48]}", LONG[24:48]),
    "Stripe": (f"s{'k_live_'}{LONG[:24]} may not", LONG[:24]),
    "Stripe, restricted": (f"r{'k_test_'}{LONG[:24]}", LONG[:24]),
    "Stripe, of a webhook": (f"wh{'sec_'}{LONG[:32]}", LONG[:32]),
    "a pair as Python shows it": (f"[('user', 'ann'), ('password', '{WORD}')]", WORD),
    "a pair in double quotes": (f'("db.password", "{WORD}")', WORD),
    "a pair in JSON": (f'["spark.hadoop.fs.s3a.secret.key", "{WORD}"]', WORD),
    "a pair of bytes": (f"(b'authorization', b'Basic {WORD}')", WORD),
    "an arrow, as Scala shows it": (f"Map(user -> ann, password -> {WORD})", WORD),
    "an arrow, of a setting": (f"ssl.keystore.password -> {WORD}", WORD),
    "a scheme of one service": (f"Authorization: GenieKey {WORD}", WORD),
    "a scheme with two parts": (f"authorization: SharedKey account:{WORD}", WORD),
    "a scheme as Python shows headers": (f"{{'Authorization': ['Splunk {WORD}']}}", WORD),
    "a pair as Scala shows it": (f"ArrayBuffer((spark.app.id,a), (spark.ssl.keyPassword,{WORD}))", WORD),
    "letters alone in a pair of Scala": ("(spark.ssl.keyPassword,swordfish)", "swordfish"),
    "a pair of Scala without a dot": (f"Map((password,{WORD}))", WORD),
    "a setting of Hadoop": (f"<name>fs.s3a.secret.key</name>\n  <value>{WORD}</value>", WORD),
    "a setting of Hive": (f"<name>javax.jdo.option.ConnectionPassword</name><value>{WORD}</value>", WORD),
    "an element": (f"<server><password>{WORD}</password></server>", WORD),
    "an assignment": (f"password := {WORD}", WORD),
    "a comparison": (f"password == {WORD}", WORD),
    "an arrow of one character": (f"password \u2192 {WORD}", WORD),
    "a quote inside": (f'password="a\\"{WORD}"', WORD),
    "a quote inside, as SQL has it": (f"password='it''s {WORD}'", WORD),
    "SQL": (f"CREATE USER ann IDENTIFIED BY '{WORD}'", WORD),
    "SQL, with a password": ("ALTER ROLE ann PASSWORD 'swordfish'", "swordfish"),
    "in quotes": ("wrong password 'swordfish' for ann", "swordfish"),
    "a wide sign of equality": (f"password\uff1d{WORD}", WORD),
    "a wide colon": (f"password\uff1a {WORD}", WORD),
}


@pytest.mark.parametrize("text", SECRETS)
@pytest.mark.parametrize("before", ["", "26/11/24 02:00:00 ERROR Q: bad\n", "Caused by: a.b.C: "])
def test_no_secret_is_shown(text: str, before: str) -> None:
    said, secret = SECRETS[text]
    if text.startswith("a line of a key"):
        before = before.removeprefix("Caused by: a.b.C: ")  # it is one by being alone
    whole = f"{before}{said}"

    assert secret not in Plain({}).text(whole)
    assert secret not in redacted(whole, {}) and HIDDEN in redacted(whole, {})
    assert redacted(redacted(whole, {}), {}) == redacted(whole, {}), "what is hidden stays as it is"


PLAIN = (
    "No cookie was sent: the server asked for none",
    "-----BEGIN CERTIFICATE----- is what it begins with, -----BEGIN PUBLIC KEY----- too",
    "the PRIVATE KEY is missing",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider$Factory2",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262 of b048210-c28c1611906f",
    "streambank restore b000004-c28c1611906f --job orders --generation --sink rollback",
    "s3://lake/savepoints/objects/9f/9f86d081884c7d65, file:///srv/checkpoints/orders.g0002/state/0/7/3.delta",
    "launch-1f9aeb06868047399e6e42759fb23388, run 4f1e0b9e-6d1f-4c3a-9d2e-5b7f0a2c9d11",
    "the password is wrong, and password authentication failed for user ann",
    "sasl.password is not set, sasl.password must be set, spark.authenticate.secret for the driver",
    "ssl.keystore.password MISSING, ssl.keystore.password Must be set, (sasl.password null)",
    "FATAL: password authentication failed; the token has expired; a secret was not found",
    "unexpected token 42 at line 7, token b000004-c28c1611906f, secret scope/key2",
    "docker run -u 1000:1000 image; ps -u root: 3 processes; beeline -u jdbc:hive2://h:10000/db",
    "git push -u origin main; kafka-topics --bootstrap-server a:9092; --user spark",
    "ghp_short glpat-short xoxb-short dapi1234 SG.a.b hvs.short s.toString AIzaShort ya29.x eyJ.a.b",
    "glue-catalog-database-of-the-warehouse sk-learn-model-version-12 xoxo-and-many-more",
    "26/11/24 02:00:00 INFO BlockManagerInfo: Added broadcast_7_piece0 in memory on 10.0.0.7:41233 (3 KiB)",
    "26/11/24 02:00:00 WARN TaskSetManager: Lost task 3.0 in stage 12.0 (TID 57) (10.0.0.7 executor 2)",
    "at org.apache.hadoop.security.token.Token.decodeIdentifier(Token.java:166)",
    "Partition orders-0's offset was changed from 900 to 300; batch 12, epoch 3, 1.5 GB in 12.7 s",
    "the bearer is unknown; a basic authentication; Bearer of the token; basic information; basic statistics",
    "npm_config_cache pypi-server sk-learn sk_live_ rk_test_ whsec_ pypi-mirror-of-the-warehouse",
    "sk-SK is a language, sk-model-of-the-warehouse-version-12 a name, task-1f9aeb06868047399e6e42759fb23388",
    "['user', 'password', 'host'], ['password', 'name', 'host'], columns (password, name)",
    "(key -> 12, orders -> 7), batch 3 -> 4, Map(a -> b), ('key', 'value'), ('user', 'ann')",
    "mysql -p orders, mysql --port=3306 -P3306, mkdir -pv x; jdbc:mysql://h:3306/db of a-pool",
    "(password,name) is a key, (key,12), (spark.app.name,orders), <value>12</value>, <name>a.b</name>",
    "Authorization is needed, a password of 'ann', passwords are kept elsewhere, the secret 'orders-tls'",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 keeps its joiner",
)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert redacted(text, {}) == text


def test_every_line_of_real_logs_stays_as_it_is() -> None:
    lines = [line for log in sorted(LOGS.iterdir()) for line in log.read_text().splitlines()]
    assert len(lines) > 100
    assert [line for line in lines if redacted(line, {}) != line] == []


FILLINGS = (
    *("password", "password ", "password=", "pass", "a.password ", "secret aA1", "token ", "-u a", "--user "),
    *("-u '", "cookie", "cookie: ", "Set-Cookie:a ", "-----BEGIN PRIVATE KEY-----", "-----", "eyJaaaaaaaa."),
    *("eyJ", "eyJ-", "aA1", "aA1\n", "SG.", f"S{'G.'}{LONG[:16]}.", "xoxa-", "ghp_", "1//0", "s.a1", "\\n"),
    *("bearer ", "bearer a", "sk-", "sk-a1", "sk-a1 ", "('password', '", "('password", "mysql ", "mysql -p"),
    *(
        "authorization: ",
        "authorization: a ",
        "(a.password,",
        "(password,",
        "<password>",
        "<",
        "password</name>",
    ),
    *("identified by '", "password '", "password='", 'password="', "password='\\", "''", "==", ":="),
    *("-> ", "password -> ", "npm_", "pypi-AgE", "\uff1d"),
    *(
        "%3A",
        "%25",
        "\u200b",
        "p\u200b",
        "\x1b[",
        "\x1b[0;",
        "a.",
        "://",
        "://a:",
        "://u:p@",
        '\\"',
        "'",
        '"',
    ),
    *(" ", "\t", "-", "\u00e9", "https%3A%2F%2F", "hooks.slack.com/services/", "x" * 64),
)
"""What a pattern could begin at each place of, and never end."""


@pytest.mark.storm
@pytest.mark.parametrize("filling", FILLINGS, ids=ascii)
def test_a_long_line_takes_time_by_its_length_alone(filling: str) -> None:
    """It takes a quarter of a second of processor; a pattern that begins anew everywhere takes a minute."""
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 15, resource.RLIM_INFINITY))
            redacted(filling * ((256 << 10) // len(filling)), {})
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("between", ["\n", " "])
def test_of_a_text_of_megabytes_the_beginning_and_the_end_are_looked_at(between: str) -> None:
    """A failed query says its plan, which is as long as it likes; a word that the cut halves is not shown."""
    middle = between.join([f"password={WORD}"] * (4 << 20 >> 5))
    began_s = time.process_time()
    said = redacted(f"It failed: token={WORD}{between}{middle}{between}Caused by: password={WORD}", {})
    assert time.process_time() - began_s < 2
    assert said.startswith("It failed: token=***") and said.endswith("Caused by: password=***")
    assert WORD not in said and " characters more ..." in said and len(said) < 140_000
    assert redacted(said, {}) == said
    assert "more" in redacted("x" * (4 << 20), {})


def test_a_text_says_that_something_is_hidden() -> None:
    assert shown(f"curl -u ann:{WORD} https://h/x said no", {}) == "curl -u ann:*** https://h/x said no"
    assert shown(f"gl{'pat-'}{LONG[:20]} is revoked", {}) == "*** is revoked"
    assert shown(f"{pem('RSA PRIVATE KEY')}\nthe end", {}).endswith("-----END RSA PRIVATE KEY-----\nthe end")
