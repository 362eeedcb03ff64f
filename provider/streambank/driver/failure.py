"""Why a driver died: the exception that ended it, found in what it recorded and in its log.

A log holds hundreds of lines after the exception that ended the driver: frames of the JVM, the query's plan,
the orderly end of Spark. The exception is the last block of lines that are not log lines and name an error. A
block with a Python traceback counts before others: an uncaught exception of the application ends the driver,
and Spark's own threads may still fail while it ends. What matters in a block comes last: the innermost cause
("Caused by: ..."), or the error that a Python worker raised, which Spark repeats within its own message.

What is shown leaves out what looks like a secret. A log is read by whoever may read the driver's host. A
failed task's message goes further: to the page, to mail, to a chat. So what follows a name such as `password`
or `access.key`, passwords in addresses, the paths of webhooks, keys of AWS, and the values of this process's
own secret variables are replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from streambank.control.control import JobControl
from streambank.control.records import JsonDict
from streambank.core.names import MAIN

HIDDEN = "***"
LINES = 40
"""How many lines of an exception are shown."""
SEARCHED_LINES = 400
"""In how many of a log's last lines the exception is looked for."""
_LONGEST = 500
"""Characters of an error that are shown."""
_FRAMES = 3
"""How many frames of the JVM are shown in a row."""
NEWEST_EVENTS = 100
"""Events among which a failure is looked for."""
_MOST_READ = 128 << 10
"""Characters of a text that are looked at: a failed query may say megabytes, and each takes seconds."""
_SHORTEST_SECRET = 6
"""A variable with fewer characters is no secret, and would be replaced in the middle of words."""

_NAMES = (
    r"(?:password|passwd|pass[ ._-]?phrase|pwd|secret|token|credential|signature|authorization|"
    r"(?:api|access|account|private)[ ._-]?key|connection[ ._-]?string|azure\.sas\.)"
)
_WORDS = r"(?<![a-z])(?:sig|pass)(?![a-z])"
"""Names that count only as whole words: `sigma` and `passed` are others."""
_VALUE = (
    r"(?P<secret>\"(?:[^\"\\]|\\.|\"\")*\"|'(?:[^'\\]|\\.|'')*'|"
    r"(?:(?:Bearer|Basic|Token|Digest|Negotiate|ApiKey) )?[^\s,;&)\]}]+)"
)
_SEPARATED = (
    r"(?<!\.java)(?<!\.scala)[\\\"']{0,4}\s{0,8}"
    r"(?:=>|->(?!\s?[\w.-]{1,64}:\s)|[=:\uff1d\uff1a]{1,2}|[\u2192\u21d2]|%(?:25){0,2}3[AD])\s{0,8}"
)
"""Between a name and its value, in JSON within JSON and in addresses, too; `Token.java:166` is a place.

Behind an arrow may come another name, whose value is then the secret."""
_PASSWORD = r"(?:password|passwd|pass[ ._-]?phrase|pwd)"
_PROSE = (
    r"(?!(?i:absent|an?|and|are|as|at|by|can|cannot|config\w*|could|does|empty|for|from|has|have|if|in|incorrect|"
    r"invalid|is|may|missing|must|needs?|none|not|null|of|on|option|or|property|required|setting|should|that|the|"
    r"to|undefined|unset|value|was|were|which|will|with|would|wrong)(?=[\s.,;:!?)\]'\"]|\Z))"
)
"""A name of a setting may be followed by one of these, and then by no value."""
_SLASH = r"(?:\\?/|%(?:25){0,2}2F)"
_BARE = r"(?P<kept>(?:(?<![\w-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})))"
"""Where a token may begin: in the middle of a run of its characters it does not, so each run is read once."""
_FILE_SYSTEMS = ("hdfs", "webhdfs", "swebhdfs", "viewfs", "gs", "abfs", "abfss", "wasb", "wasbs", "file")
"""After a port of theirs comes a path. An address of S3 has no port, and may have a secret key."""
_FILES = "|".join(rf"(?<=\b{file_system}://)" for file_system in _FILE_SYSTEMS)
_BEGINS = rf"(?P<kept>://(?!{_FILES})[^/\s:@]*:)"
"""Where a password may begin in an address that is not of a file system."""
_ON = (
    r"(?:(?!://|[?&;][\w.-]{0,64}(?i:user|name|mail|account|principal|login|owner)[\w.-]{0,64}="
    r"[^\s\"'<>&;@]{1,128}@[\w.-]+(?:[\s\"'<>&;,)\]}]|\Z))[^\s\"'<>])"
)
"""A character of a password; it ends before a parameter that is an address of mail: `?user=ann@corp.com`."""
_HIDING = (
    re.compile(  # what follows a scheme that `_VALUE` does not know: `GenieKey`, `Splunk`, `SharedKey`
        r"(?P<kept>authorization[\\\"']{0,4}\s{0,8}(?:=>|->|[=:])\s{0,8}[\[(]?[\\\"']{0,4}"
        r"[A-Za-z][\w.-]{0,40}[ \t]{1,4})"
        r"(?P<secret>[^\s\"'\\,;)\]}]{6,})",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?P<kept>(?:{_NAMES}[\w.-]{{0,64}}{_SEPARATED}|{_WORDS}\s?=)){_VALUE}", re.IGNORECASE
    ),  # nothing in it runs on without a limit but the value: what a failed query says may be megabytes long
    re.compile(  # a password with nothing between; a word of prose has no digit and no sign in it
        rf"(?P<kept>{_PASSWORD}[\"']?[ \t]{{1,8}}(?:(?:is|was)[ \t])?)(?=[\w.-]{{0,64}}[\d!@#$%^&*~])(?!/)"
        r"(?P<secret>[^\s,;)\]}]{6,})",
        re.IGNORECASE,
    ),
    re.compile(  # the same of a setting, as files of properties have it: `sasl.password swordfish`
        r"(?P<kept>(?<![\w.-])[\w-]{1,64}\.[\w.-]{0,64}(?<=[a-z.])(?:[Pp]assword|passwd|passphrase|pwd|[Ss]ecret|[Tt]oken|"
        rf"(?<=\.)(?:access|secret)\.key)[ \t]{{1,8}}){_PROSE}(?P<secret>[^\s,;()\[\]{{}}]{{4,}})"
    ),
    re.compile(  # a token or a key, by the three kinds of characters that it has
        r"(?P<kept>(?i:secret|token|credential|\b(?:api|access|account|private)[ ._-]?key)[ \t]{1,8})"
        r"(?=[a-z\d+_=~-]{0,200}[A-Z])(?=[A-Z\d+_=~-]{0,200}[a-z])(?=[A-Za-z+_=~-]{0,200}\d)"
        r"(?P<secret>[\w+=~-]{16,})"
    ),
    re.compile(  # `curl -u ann:hunter2`, and so in a list; not the numbers of a user and a group
        r"(?P<kept>(?<![\w-])(?:-u|--(?:proxy-)?user)[\"']?[\s=,]{1,8}(?P<quote>[\"'])?(?!jdbc:)[^\s:\"'/=,]{1,64}:)"
        r"(?!//|\d{1,10}(?:[\s\"']|\Z))(?P<secret>(?(quote)[^\"'\r\n]+|[^\s\"']+))"
    ),
    re.compile(  # `mysql -phunter2`: nothing is between
        r"(?P<kept>\b(?:mysql|mariadb)[\w-]{0,16}[\"']?[,\s](?:[^\r\n|;&]{0,200}?[\s\"'])?-p)"
        r"(?=[\w.-]{0,64}[\d!@#$%^&*~])(?P<secret>[^\s\"',]{6,})"
    ),
    re.compile(  # a pair as Python and JSON show it; in a list of more these are names of columns
        rf"(?P<kept>(?<=[(\[])b?\\{{0,4}}[\"'][\w.-]{{0,64}}(?:{_NAMES}|{_WORDS})[\w.-]{{0,64}}\\{{0,4}}[\"'],\s{{0,8}}"
        r"b?\\{0,4}(?P<quote>[\"']))(?P<secret>(?:(?!(?P=quote))[^\r\n])+)(?=(?P=quote)\s{0,8}[)\]])",
        re.IGNORECASE,
    ),
    re.compile(  # a pair as Scala shows it: `(spark.ssl.keyPassword,swordfish)`
        rf"(?P<kept>(?<=\()(?=[\w-]{{0,64}}\.|[\w-]{{0,128}},[^\s(),]{{0,64}}[\d!@#$%^&*~])[\w.-]{{0,64}}(?:{_NAMES}|{_WORDS})"
        r"[\w.-]{0,64},)(?P<secret>[^\s(),]{4,})(?=\))",
        re.IGNORECASE,
    ),
    re.compile(  # an element of XML, and a setting of Hadoop in it
        rf"(?P<kept><[\w:.-]{{0,64}}(?:{_NAMES})[\w.-]{{0,64}}>|(?:{_NAMES})[\w.-]{{0,64}}</name>\s{{0,64}}<value>)"
        r"(?P<secret>[^<>]+)(?=</)",
        re.IGNORECASE,
    ),
    re.compile(  # in quotes: `IDENTIFIED BY 'swordfish'`, `wrong password 'swordfish'`
        rf"(?P<kept>(?:\bidentified by|{_PASSWORD})[ \t]{{1,8}}(?:(?:is|was)[ \t])?)"
        r"(?P<secret>'(?:[^'\\\r\n]|\\.|'')+'|\"(?:[^\"\\\r\n]|\\.)+\")",
        re.IGNORECASE,
    ),
    re.compile(  # a header of cookies, to its end
        r"(?P<kept>(?<![a-z])(?:set-)?cookie2?[\\\"']{0,4}\s{0,8}[=:]\s{0,8})(?=[^\r\n]{0,128}=)"
        r"(?P<secret>\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\r\n]+)",
        re.IGNORECASE,
    ),
    re.compile(  # a private key, whole or cut off; and one line of it, since logs are shown by lines
        r"(?P<kept>-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)(?P<secret>(?:[^-]|-(?!----))+)"
    ),
    re.compile(
        r"(?P<kept>^[ \t]{0,8})(?=[A-Z\d+/]{0,64}[a-z])(?=[a-z\d+/]{0,64}[A-Z])(?=[A-Za-z+/]{0,64}\d)"
        r"(?P<secret>[A-Za-z\d+/]{60,76}={0,2})(?=\s*$)",
        re.MULTILINE,
    ),
    re.compile(  # what is a token by its own form, of whom it is
        rf"{_BARE}(?P<secret>eyJ[\w-]{{8,}}(?:\.[\w-]*){{2,4}}"  # JWT
        r"|gh[oprsu]_[A-Za-z\d]{20,}|github_pat_\w{20,}"
        r"|gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w-]{20,}"
        r"|xox[a-eprs](?:\.xox[a-eprs])?-(?=[A-Za-z-]{0,64}\d)[\w-]{10,}|xapp-\d-[\w-]{10,}"  # Slack
        r"|(?:dapi|dkea|dose)[\da-f]{32}(?:-\d)?"  # Databricks
        r"|SG\.[\w-]{16,}\.[\w-]{16,}"  # SendGrid
        r"|AIza[\w-]{30,}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|1//0[\w-]{30,}"  # Google
        r"|npm_[A-Za-z\d]{30,}|pypi-AgE[\w-]{16,}"
        r"|[rs]k_(?:live|test)_[A-Za-z\d]{16,}|whsec_[A-Za-z\d+/]{24,}"  # Stripe
        r"|sk-(?=[A-Za-z_-]{0,64}\d)(?=[\w-]{0,64}[A-Za-z\d]{16})[\w-]{20,}"  # OpenAI, and others
        r"|hv[bsr]\.[\w-]{20,}|s\.(?=[A-Za-z]{0,24}\d)[A-Za-z\d]{24}(?![\w.])"  # Vault
        r"|(?:AKIA|ASIA)[A-Z\d]{16}\b)"
    ),
    re.compile(  # an argument: `--db-password hunter2`, and so in a list
        rf"(?P<kept>(?<![\w-])--?[\w.-]{{0,64}}(?:{_NAMES}|{_WORDS})[\w.-]{{0,64}}(?<!file)(?<!path)(?<!dir)"
        rf"[\"']?[,\s]{{1,8}})(?=\S{{4}})(?!-){_VALUE}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?P<kept>://(?:{_FILES})(?![^/\s:@]*:\d{{1,5}}(?:,[\w.-]+(?::\d{{1,5}})?)*/)"
        rf"[^/\s:@]*:)(?P<secret>[^/\s]+|{_ON}+)(?=@)"
    ),
    # A password may have slashes; a number before the first one may be a port: see below.
    re.compile(rf"{_BEGINS}(?P<secret>(?!\d{{1,5}}/){_ON}+|[^/\s]+)(?=@)"),
    # It is one in `h:80/t@v12` (a version), `h:80/x@2026-11-28` and `h:80/@scope/x`; else what stands before
    # an `@` is taken for a password, also where it is the path of an address with a port.
    re.compile(
        rf"{_BEGINS}(?P<secret>\d{{1,5}}/{_ON}*(?<!/)"
        r"(?=@(?!(?:v?\d+|\d{4}-\d\d-\d\d)(?![\w.:-])))|\d{1,5}/+(?=@[\w-]+(?:\.\w|:\d)))"
    ),
    re.compile(  # who has the address of a webhook may write there: Slack, Discord, Teams
        rf"(?P<kept>(?:\b|(?<=2F))(?:hooks\.slack(?:-gov)?\.com(?::\d{{1,5}})?{_SLASH}(?:services|workflows|triggers)"
        rf"|discord(?:app)?\.com(?::\d{{1,5}})?{_SLASH}api{_SLASH}(?:v\d{{1,3}}{_SLASH})?webhooks"
        rf"|(?:[\w-]{{1,63}}\.webhook|outlook)\.office(?:365)?\.com(?::\d{{1,5}})?{_SLASH}webhook(?:b2)?"
        rf"|url: ?/(?:services|workflows|triggers|webhook(?:b2)?|api/(?:v\d{{1,3}}/)?webhooks)){_SLASH})"
        r"(?P<secret>[^\s\"'<>?#)\]}]+)",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?P<kept>\bjdbc:oracle:\w{1,16}:[^/\s@]{0,128}/)(?P<secret>\"[^\"]{1,128}\"|[^@\s]{1,128})(?=@)",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?P<kept>\b(?:Bearer |Basic |(?i:bearer )(?=[A-Za-z+/=._~-]{0,200}\d)))"
        r"(?P<secret>[A-Za-z0-9+/=._~-]{8,})"
    ),
)
"""What looks like a secret by what stands around it, or by its own form."""
_UNSEEN = re.compile(
    r"\x1b\[[\d;]{0,32}m|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
"""What is not seen, and hides a name from a pattern: it stays only where no secret is found without it."""
_SECRET_VARIABLE = re.compile(f"{_NAMES}|{_WORDS}", re.IGNORECASE)
_PLACE = re.compile(r"(?:OLD)?PWD|.*_(?:FILE|PATH|DIR|HOME)", re.IGNORECASE)
"""Variables that say where something is: the shell's working directory, the file that holds a token."""

JOB = "<job>"
"""Stands for the name of the job where that is not known."""
_LEAVE = " (Streambank: leave that check on, whatever the message says: "
_ADVICE = (
    (
        re.compile(
            r"STATE_STORE_(?:\w+_)?SCHEMA(?:_\w+)?|STATE_STORE_\w+_ROW_FORMAT_VALIDATION|STATEFUL_OPERATOR_NOT_MATCH"
            r"|stateSchemaCheck|formatValidation|existing state (?:key|value) schema",
            re.IGNORECASE,
        ),
        f"{_LEAVE}the code does not fit the state, which is unharmed. Go back to the old code; or take the "
        "new code over with <job>.upgrade, which tries it on a copy first, after a change of the state by "
        "`streambank state migrate` where it is needed.)",
    ),
    (
        re.compile(
            r"failOnDataLoss|ignoreMissingFiles|ignoreCorruptFiles|ignoreDeletes|ignoreChanges|ignoreFileDeletion"
            r"|skipChangeCommits|streaming-skip-[\w-]+|skip\w*(?:Offset|Batch|Snapshot)s?\b",
            re.IGNORECASE,
        ),
        f"{_LEAVE}without it rows are lost in silence. Bring the input back, or see what is missing in "
        "the plan of <job>.restore, and decide there.)",
    ),
    (
        re.compile(
            r"spark\.(?:sql|databricks)\.[\w.]*(?:check(?!point)|validat|unsafe|allow|ignore|skip)\w*[\w.]*"
            r"|\ballowSourceColumn\w+|allowUnsafe\w*",
            re.IGNORECASE,
        ),
        f"{_LEAVE}it keeps the query from wrong results. Go back to the code that ran, or take the new code "
        "over with <job>.upgrade, which tries it on a copy first.)",
    ),
)
"""What Spark and connectors say where they advise to switch a check off, and what is said with it."""
_SAID = [re.compile(re.escape(words).replace(JOB, r"\S+?")) for _, words in _ADVICE]
"""The same with the name of any job."""

_EVENT = re.compile(r"streambank: [a-z-]+ \{")
"""What the runner says of a step that it records."""
_LOG_LINE = re.compile(
    rf"{_EVENT.pattern}|"
    r"\d\d(?:\d\d)?[/-]\d\d[/-]\d\d[ T]\d\d:\d\d:\d\d\S* +[A-Z]+ |\{\"ts\": ?\"|\{\"time"
)
_LEVEL = re.compile(r"(?:\S+ )?\S+ (?:ERROR|FATAL) \S.*")
_ERROR = re.compile(
    r"(?:Caused by: |: )?(?:[A-Za-z_$][\w$]*\.)*"
    r"[A-Za-z_$][\w$]*(?:Error|Exception|Interrupt|Fault|Refused)\b.*"
)
_TRACEBACK = "Traceback (most recent call last):"
_ENDS = re.compile(r"[A-Za-z_][\w.]*(?:: .*)?\Z")
"""The line behind the frames of a traceback: not every class is called an error (`socket.gaierror`)."""
_FRAME = re.compile(r"\s+at \S")
_WRAPPING = re.compile(
    r"^(?:: )?(?:[\w.$]*StreamingQueryException: )?\[STREAM_FAILED\] Query .*? terminated with exception: "
)
_CAPTURED = re.compile(r"^pyspark\.errors\.exceptions\.\w+\.")
_STATE = re.compile(r"(?: SQLSTATE: \w{5})+;?$")
_CAUSED_BY = "Caused by: "
_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")
_COMPARED, _SHORTEST = 200, 15
"""Characters by which two errors are compared; fewer say too little."""
_PLAN = "=== Streaming Query ==="
NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded|\b(?:ENOSPC|EDQUOT)\b")
"""What Linux, and whoever passes its words on, says of a full disk."""
_OPENS = (_TRACEBACK, "error:", "exception was thrown from the Python worker:")


@dataclass(frozen=True, slots=True)
class DriverFailure:
    """What ended a driver.

    Attributes:
        cause: The innermost error in a sentence, without secrets and at most 500 characters long.
        lines: Its exception from the head on, without secrets: at most `LINES`, and long runs of frames are
            counted only. Empty where nothing but a sentence is known.
        query: The query that failed, where the job has several; None where that is not known.
        known: Whether that is an error, and not only how a log ends.
        hint: What to do, where the driver has refused to run; empty where it has died.
    """

    cause: str
    lines: tuple[str, ...] = ()
    query: str | None = None
    known: bool = True
    hint: str = ""

    @property
    def sentence(self) -> str:
        """The cause, with the query that it ended."""
        return self.cause if self.query is None else f"query {self.query} failed: {self.cause}"

    @property
    def is_for_room(self) -> bool:
        """Whether a full disk ended it, which no other driver would do better on."""
        return any(NO_ROOM.search(text) for text in (self.cause, *self.lines))


def driver_failure(
    control: JobControl, launch_id: str | None, lines: Sequence[str], *, newest: int = NEWEST_EVENTS
) -> DriverFailure | None:
    """Why a driver died: what it refused, else what the runner recorded of its query, else what its log says.

    Args:
        newest: Among so many of the newest events what it recorded is looked for.
    """
    found = _failure_of(control, launch_id, lines, newest)
    if found is None:
        return None
    cause, *shown_lines = (text.replace(JOB, control.name) for text in (found.cause, *found.lines))
    return replace(found, cause=cause, lines=tuple(shown_lines))


def _failure_of(
    control: JobControl, launch_id: str | None, lines: Sequence[str], newest: int
) -> DriverFailure | None:
    refused = refusal(control, launch_id, newest=newest) if launch_id is not None else None
    if refused is not None and refused.get("why"):
        return DriverFailure(shown(str(refused["why"])), hint=shown(str(refused.get("hint") or "")))
    event = _failed_query(control, launch_id, newest) if launch_id is not None else None
    logged = failure_in(lines)
    if event is None:
        return logged
    recorded, query = str(event["failure"]), event.get("query")
    return DriverFailure(
        shown(_followed(_innermost(recorded), lines)),
        logged.lines if logged else (),
        None if query in (None, MAIN) else str(query),
    )


def recorded_failure(control: JobControl, launch_id: str) -> str | None:
    """Why a query of a launch failed, as the runner recorded it; None where it recorded no failure.

    The runner has left out what looks like a secret to it; what does to the reader goes by `shown`.
    """
    event = _failed_query(control, launch_id, NEWEST_EVENTS)
    return None if event is None else str(event["failure"])


def root_cause(text: str, job: str) -> str:
    """What an error says last of its chain of causes, in one line without secrets: what a person can act on.

    Args:
        text: The error as it was recorded, or as Java or Python show it.
    """
    return shown(_innermost(text)).replace(JOB, job)


def _innermost(text: str) -> str:
    found = failure_in(text.splitlines())
    return text if found is None else found.cause


def _followed(cause: str, lines: Sequence[str]) -> str:
    """The last of the causes that a log names of an error; the error itself where it names none.

    Spark shows its own exception to Python, and the JVM's log has what caused it.
    """
    for _, block in reversed(list(_blocks(lines))):
        errors = [line for line in _errors(block) if not _opens(line)]
        place = next((number for number, one in enumerate(errors) if _is_same(_bare(one), cause)), None)
        inner = (
            [] if place is None else [error for error in errors[place + 1 :] if error.startswith(_CAUSED_BY)]
        )
        if inner:
            return _bare(inner[-1])
    return cause


def _is_same(one: str, other: str) -> bool:
    """Whether two lines name one error: the one may have a class before it, and be cut off at its end."""
    bare = [_CLASS.sub("", text)[:_COMPARED].strip() for text in (one, other)]
    return all(len(text) >= _SHORTEST for text in bare) and (bare[0] in other or bare[1] in one)


def refusal(control: JobControl, launch_id: str, *, newest: int = NEWEST_EVENTS) -> JsonDict | None:
    """The record of what the driver of a launch has refused; None where another driver of it has run.

    A cluster may start a second one while the first still holds the lease.
    """
    event = control.last_event("driver-refused", launch_id=launch_id, newest=newest)
    if event is None:
        return None
    second = event.get("code") == "lease-held" and launch_id in control.lease.recent_launches()
    return None if second else event


def _failed_query(control: JobControl, launch_id: str, newest: int) -> JsonDict | None:
    """The record of the query of a launch that failed last."""
    for record in control.event_records.history(newest=newest):
        event = record.data
        mine = event.get("kind") == "query-ended" and event.get("launch_id") == launch_id
        if mine and event.get("failure"):
            return event
    return None


def failure_in(lines: Sequence[str]) -> DriverFailure | None:
    """What a log says went wrong last; None for an empty log.

    Without an exception in it, that is the last line of level ERROR; else the last line.
    """
    deciding = _deciding(lines)
    if deciding is not None:
        block = deciding[1]
        cause = [line for line in _errors(block) if not _opens(line)] or _errors(block)
        return DriverFailure(
            shown(_followed(_bare(cause[-1]), lines)),
            tuple(map(shown, _short(block))),
        )
    own = [line.strip() for line in lines if line.strip()]
    said = [line for line in own if not _EVENT.match(line)] or own
    found = next((line for line in reversed(said) if _LEVEL.match(line)), said[-1] if said else None)
    if found is None:
        return None
    return DriverFailure(shown(_bare(found)), known=_LEVEL.match(found) is not None)


def shown(text: str, variables: Mapping[str, str] | None = None) -> str:
    """A text without what looks like a secret, and not too long."""
    text, note = _apart(redacted(text, variables))
    return f"{text if len(text) <= _LONGEST else f'{text[:_LONGEST]} ...'}{note}"


def warned(text: str) -> str:
    """A text of Spark or a connector, with our own way out behind its advice to switch a check off."""
    return "".join(_apart(text))


def _apart(text: str) -> tuple[str, str]:
    """A text, and what we say to the advice in it; empty where there is none."""
    for words in _SAID:
        text = words.sub("", text)
    return text, next((words for pattern, words in _ADVICE if pattern.search(text)), "")


def redacted(text: str, variables: Mapping[str, str] | None = None) -> str:
    """A text without what looks like a secret, nor the secrets of these variables (of this process's)."""
    return without(text, secret_values((os.environ if variables is None else variables).items()))


def without(text: str, values: Iterable[str]) -> str:
    """A text without some values, ordered as by `secret_values`, and without what looks like a secret."""
    for value in values:
        text = text.replace(value, HIDDEN)
    text = _hidden(_ends(text))
    bare = _UNSEEN.sub("", text)
    if bare == text:
        return text
    hidden = _hidden(bare)
    return text if hidden == bare else hidden


def _ends(text: str) -> str:
    """The beginning and the end of a text that is too long; the end begins a line, or else a word."""
    if len(text) <= _MOST_READ:
        return text
    half = _MOST_READ // 2 - 64
    end = text[-half:]
    _, _, end = end.partition("\n") if "\n" in end else end.partition(" ")
    return f"{text[:half]}\n... {len(text) - half - len(end)} characters more ...\n{end}"


def _hidden(text: str) -> str:
    for pattern in _HIDING:
        text = pattern.sub(rf"\g<kept>{HIDDEN}", text)
    return text


def secrets_within(text: str) -> list[str]:
    """What in a text looks like a secret: the password of an address, or what follows `password`."""
    return [found["secret"].strip("\"'") for pattern in _HIDING for found in pattern.finditer(text)]


def secret_values(named: Iterable[tuple[str, str]], more: Iterable[str] = ()) -> list[str]:
    """The values of those variables, or settings, whose names say that their values are secrets.

    A value of several lines is there line by line as well, since logs are shown by lines. The longest come
    first: one may begin with another.

    Args:
        named: Names with values; a name may be there more than once.
        more: Secrets without a name.
    """
    values = [*more, *(value for name, value in named if is_secret(name, value))]
    pieces = {line.strip() for value in values for line in (value, *value.splitlines())}
    return sorted(
        (piece for piece in pieces if len(piece) >= _SHORTEST_SECRET), key=lambda one: (-len(one), one)
    )


def is_secret(name: str, value: str) -> bool:
    """Whether a name says that the value is a secret; one of a few characters is none."""
    long = len(value) >= _SHORTEST_SECRET
    return long and _SECRET_VARIABLE.search(name) is not None and not _PLACE.fullmatch(name)


def since_failure(lines: Sequence[str]) -> Sequence[str]:
    """The lines from the exception on that `failure_in` finds; none where there is no exception."""
    found = _deciding(lines)
    return () if found is None else lines[found[0] :]


def _deciding(lines: Sequence[str]) -> tuple[int, list[str]] | None:
    """Where the block of the exception begins that ended a driver, and it; None where there is none."""
    blocks = [(begin, block) for begin, block in _blocks(lines) if _errors(block)]
    python = [block for block in blocks if any(line.startswith(_TRACEBACK) for line in block[1])]
    return (python or blocks)[-1] if blocks else None


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The runs of lines between log lines, without a query's plan, and where each begins."""
    block: list[str] = []
    begin, planned = 0, False
    for number, line in enumerate([*lines, '{"ts":"']):
        if _LOG_LINE.match(line):
            if block:
                yield begin, block
            block, planned = [], False
        elif line.startswith(_PLAN):
            planned = True
        elif line.strip() and not planned:
            begin = begin if block else number
            block.append(line.rstrip())


def _errors(block: Sequence[str]) -> list[str]:
    found, traced = [], False
    for before, line in zip(["", *block], block, strict=False):
        if _ERROR.match(line) or (traced and before.startswith("  ") and _ENDS.match(line)):
            found.append(line)
        traced = traced or line.startswith(_TRACEBACK)
    return found


def _opens(line: str) -> bool:
    """Whether the error that a line names is told by the lines below it."""
    return line.endswith(_OPENS)


def _bare(line: str) -> str:
    """An error without what Spark wraps around it, and around its code."""
    # What Python's traceback says of an exception of the JVM begins with its colon.
    inner = _CAPTURED.sub("", _WRAPPING.sub("", line).removeprefix(": ").removeprefix("Caused by: "))
    return _STATE.sub("", inner)


def _short(block: Sequence[str]) -> list[str]:
    """An exception with its long runs of frames counted, cut in the middle where it is still long."""
    short: list[str] = []
    frames = 0
    for line in block:
        frames = frames + 1 if _FRAME.match(line) else 0
        if frames <= _FRAMES:
            short.append(line)
        elif frames == _FRAMES + 1:
            short.append("\t... 1 more")
        else:
            short[-1] = f"\t... {frames - _FRAMES} more"
    if len(short) <= LINES:
        return short
    half = LINES // 2
    return [*short[:half], f"... {len(short) - 2 * half} lines more", *short[-half:]]
