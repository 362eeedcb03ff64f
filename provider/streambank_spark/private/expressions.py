"""SQL expressions over state, looked at before anything of them runs: what is not on the list is refused.

An expression comes from a form, a declaration or a request, and Spark would let it read any file, call any
method of the JVM and ask other tables. So it is looked at twice. First as Spark's parser gives it, since to
analyse a subquery already opens what it reads, and to analyse `java_method` loads the class: each function is
looked up in Spark's registry, and the class behind its name must be on the list. Then as Spark has analysed
it: it must be a projection of nothing but the state's own rows, of classes on the list. Nothing is optimized,
so no constant is folded, before both have passed.

Private, read in Spark 4.3.0 and tried there: `SessionState.sqlParser` and `.functionRegistry`, the classes of
`org.apache.spark.sql.catalyst.expressions` and `.analysis`. Spark 3.5 has the same ones, with `TimeAdd` for
`TimestampAddInterval`, and finds a function by its name alone. A class that a later Spark adds is refused
until it is added here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streambank.core.errors import InputError
from streambank.driver.spark_releases import FOR_STATE, listed, rewrites_state
from streambank_spark.failures import not_supported
from streambank_spark.private.jvm import elements, gateway

MOST_CHARACTERS = 10_000
"""Length of an expression."""

_CATALYST = "org.apache.spark.sql.catalyst."
_BUILDER = re.compile(r"(?:Expression)?Builder\Z")
"""How the class behind a function's name ends where it makes expressions of several classes."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED = _words(
    """
    Literal CreateArray CreateMap CreateNamedStruct CreateStruct And Or Not EqualTo EqualNullSafe
    EqualNull GreaterThan GreaterThanOrEqual LessThan LessThanOrEqual In Between IsNull IsNotNull IsNaN
    NaNvl Coalesce Nvl Nvl2 NullIf NullIfZero ZeroIfNull If CaseWhen Greatest Least Cast TypeOf Add
    Subtract Multiply Divide IntegralDivide Remainder Pmod UnaryMinus UnaryPositive Abs Signum TryAdd
    TrySubtract TryMultiply TryDivide TryMod BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitwiseCount
    BitwiseGet ShiftLeft ShiftRight ShiftRightUnsigned Ceil Floor RoundCeil RoundFloor Round BRound Rint
    Sqrt Cbrt Pow Exp Expm1 Log Log10 Log1p Log2 Logarithm Hypot Sin Cos Tan Cot Asin Acos Atan Atan2
    ToDegrees ToRadians Pi EulerNumber WidthBucket ToNumber TryToNumber Conv Bin Hex Unhex Like ILike
    RLike Contains StartsWith EndsWith StringInstr StringLocate FindInSet Levenshtein SoundEx Lower
    Upper InitCap Length BitLength OctetLength Ascii Chr Reverse Left Right Substring SubstringIndex
    StringTrim StringTrimBoth StringTrimLeft StringTrimRight StringReplace StringTranslate Overlay
    Concat ConcatWs StringSplit SplitPart RegExpExtract RegExpReplace Base64 UnBase64 Encode Decode
    ToBinary TryToBinary Md5 Sha1 Sha2 Crc32 Murmur3Hash XxHash64 GetJsonObject StructsToJson
    CurrentDate CurDate CurrentTimestamp Now LocalTimestamp MakeDate MakeTimestamp MakeTimestampLTZ
    MakeTimestampNTZ MakeInterval MakeDTInterval MakeYMInterval ParseToDate ParseToTimestamp
    ParseToTimestampLTZ ParseToTimestampNTZ TryToDate TryToTimestamp Year Quarter Month WeekOfYear
    DayOfMonth DayOfWeek WeekDay DayOfYear Hour Minute Second DayName MonthName DatePart Extract DateAdd
    DateSub DateDiff AddMonths MonthsBetween LastDay NextDay TruncDate TruncTimestamp DateFormatClass
    FromUnixTime UnixTimestamp ToUnixTimestamp SecondsToTimestamp MillisToTimestamp MicrosToTimestamp
    UnixDate DateFromUnixDate UnixSeconds UnixMillis UnixMicros FromUTCTimestamp ToUTCTimestamp
    ConvertTimezone Size ArraySize Get ElementAt TryElementAt ArrayContains ArrayPosition ArrayMin
    ArrayMax ArrayJoin ArrayDistinct ArrayCompact ArraysOverlap ArrayIntersect ArrayExcept ArrayUnion
    ArrayRemove ArrayAppend ArrayPrepend SortArray Slice Flatten ArrayExists ArrayForAll ArrayFilter
    ArrayTransform MapKeys MapValues MapEntries MapContainsKey MapFromArrays MapFromEntries MapConcat
    MapFilter TransformKeys TransformValues
    """
)
"""Classes, without their package, that the parser or a function's name may give: each only computes, the same
from the same row. What makes much out of little is not here (`repeat`, `sequence`, `aggregate`, `lpad`)."""
_WRITTEN = _words(
    """
    UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction LambdaFunction
    UnresolvedNamedLambdaVariable
    """
)
"""Classes besides, in what is parsed: names, and functions, which are looked up."""
_MADE = _words(
    """
    AttributeReference GetStructField GetArrayStructFields GetArrayItem GetMapValue LambdaFunction
    NamedLambdaVariable With CommonExpressionDef CommonExpressionRef ArrayInsert ArraySort
    TimestampAddInterval TimeAdd TimestampAddYMInterval DateAddInterval DateAddYMInterval DatetimeSub
    SubtractTimestamps SubtractDates MultiplyYMInterval MultiplyDTInterval MultiplyInterval
    DivideYMInterval DivideDTInterval DivideInterval ExtractANSIIntervalDays ExtractANSIIntervalHours
    ExtractANSIIntervalMinutes ExtractANSIIntervalSeconds ExtractANSIIntervalMonths
    ExtractANSIIntervalYears SecondWithFraction GetTimestamp TryEval
    StringSplitSQL StringDecode DecodeWithCharset NullIfResult DecimalDivideWithOverflowCheck Invoke
    StaticInvoke
    """
)
"""Classes besides, in what is analysed: what Spark makes of the ones above, which no SQL names."""
_NAMES = {
    "ScalarSubquery": "a subquery",
    "Exists": "a subquery",
    "ListQuery": "a subquery",
    "InSubquery": "a subquery",
    "AggregateExpression": "an aggregate",
    "WindowExpression": "a window",
    "UnresolvedWindowExpression": "a window",
    "UnresolvedStar": "*",
    "NamedParameter": "a parameter",
    "PosParameter": "a parameter",
    "ExpressionWithUnresolvedIdentifier": "IDENTIFIER",
    "CurrentUser": "the current user",
    "VariableReference": "a session variable",
}
"""How a person calls some of what is refused."""
_GROWING = _words(
    "StringReplace RegExpReplace StringTranslate Overlay Concat ConcatWs ArrayTransform ArrayUnion Flatten"
    " TransformKeys TransformValues MapConcat"
)
_MOST_GROWING = 3
"""So many of these may stand one inside the other: ten would make a heap of memory out of one letter."""
_PATTERNS = {"Like", "ILike", "RLike", "StringSplit", "RegExpExtract", "RegExpReplace"}
"""Classes whose second argument is a pattern; Java tries every way to match it."""

HINT = (
    "Use the columns of the state with operators, CASE, casts, and functions that compute the same from the "
    "same row: docs/howto/rewrite-state.md lists them."
)


def computed(frame: DataFrame, text: str) -> Column:
    """An SQL expression as a column of a frame, found, without being run, to compute from its columns alone.

    Raises:
        InputError: It uses what is not allowed (code `bad-expression`); the message names that.
        FormatError: Another Spark (code `spark-not-supported`).
        AnalysisException: Spark cannot parse or analyse it.
    """
    from pyspark import __version__

    if not rewrites_state(__version__):
        raise not_supported(
            f"Expressions over state cannot be checked with Spark {__version__}: its classes are not known.",
            f"Run it with PySpark {listed(FOR_STATE)}; the query may run on another one.",
        )
    if len(text) > MOST_CHARACTERS:
        raise _refused(f"it has more than {MOST_CHARACTERS:,} characters", "Write it shorter.")
    session: Any = frame.sparkSession
    state = session._jsparkSession.sessionState()
    registry = state.functionRegistry()
    _check(state.sqlParser().parseExpression(text), lambda node: _class_of_parsed(node, registry), _WRITTEN)
    _check_analysed(frame, F.expr(text))
    return F.expr(text)


def _check_analysed(frame: Any, column: Column) -> None:
    plan = frame.select(column.alias("computed"))._jdf.queryExecution().analyzed()
    rows = frame._jdf.queryExecution().analyzed()
    if _name(plan) != "Project" or not plan.child().equals(rows):
        raise _refused("it needs more than the row that it is computed of")
    (aliased,) = elements(plan.projectList())
    _check(aliased.child(), _class, _MADE)


def _check(root: Any, class_of: Callable[[Any], str], more: frozenset[str]) -> None:
    """Look at every node of an expression.

    Args:
        class_of: The class that must be on the list; raises for what has none.
        more: Classes that are allowed besides.
    """
    nodes = [(root, 0)]
    while nodes:
        node, within = nodes.pop()
        found = class_of(node)
        if found not in ALLOWED and found not in more:
            raise _refused(f"{_NAMES.get(found, found)} is not allowed in it")
        children = list(elements(node.children()))
        # As it is written; Spark may make something else of a pattern.
        if more is _WRITTEN and found in _PATTERNS and len(children) > 1:
            _check_pattern(children[1], like=found in ("Like", "ILike"))
        within += found in _GROWING
        if within > _MOST_GROWING:
            raise _refused("too many functions in it that make text longer, one inside the other")
        nodes += reversed([(child, within) for child in children])


def _class(node: Any) -> str:
    """The class of an expression of Spark's own, without its package."""
    name = str(node.getClass().getName())
    return _name(node) if name.startswith(_CATALYST) else name


def _class_of_parsed(node: Any, registry: Any) -> str:
    """The same; that of what a function makes where it is a call."""
    found = _class(node)
    if found != "UnresolvedFunction":
        return found
    parts = [str(part) for part in elements(node.nameParts())]
    made = class_of_function(parts[0], registry) if len(parts) == 1 else None
    if made not in ALLOWED:
        raise _refused(f"the function {'.'.join(parts)} is not allowed in it")
    return made


def class_of_function(name: str, registry: Any) -> str | None:
    """The class behind a function of Spark's own; None where there is none, or another of that name.

    Args:
        registry: A session's `functionRegistry`, which has Spark's functions and those that were registered.
    """
    java = gateway().jvm

    def lookup(place: str) -> Any:
        of_place = (java.scala.Some(place), java.scala.Some("system"))
        return registry.lookupFunction(
            getattr(java, f"{_CATALYST}FunctionIdentifier")(name.lower(), *of_place)
        )

    known = lookup("builtin")
    if not known.isDefined() or lookup("session").isDefined():
        return None
    return _BUILDER.sub("", str(known.get().getClassName()).rpartition(".")[2])


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName()).removesuffix("$")


def _refused(what: str, hint: str = HINT) -> InputError:
    return InputError(f"The expression cannot be used: {what}.", code="bad-expression", hint=hint)


_ESCAPED = re.compile(r"\\[pP](?:\{\w+\}|\w)|\\.", re.DOTALL)
_ONE_OF = re.compile(r"\[\^?[^\]]*\]")
_REPEAT = re.compile(r"[*+?{]")
_MOST_REPEATS, _MOST_ALTERNATIVES, _MOST_WILDCARDS = 2, 20, 3
_PATTERN_HINT = (
    "Write the pattern as a text. A pattern of rlike or split may repeat a character (* + ? {}) once, or "
    "twice if it begins with ^, and no group; one of like may have three %."
)


def _check_pattern(node: Any, *, like: bool) -> None:
    """Refuse a pattern for which Java would need more than about the square of a text's length."""
    if _name(node) != "Literal":
        raise _refused("a pattern in it is computed", _PATTERN_HINT)
    text = str(node.value())
    costs = text.count("%") > _MOST_WILDCARDS if like else _is_costly(text)
    if costs:
        raise _refused("a pattern in it may take too long to match", _PATTERN_HINT)


def _is_costly(pattern: str) -> bool:
    if re.search(r"\\[QEkc1-9]|\(\?", pattern):
        return True  # quotes, references, control characters, and groups that are more than a group
    plain = _ONE_OF.sub("x", _ESCAPED.sub("x", pattern))
    repeats = len(_REPEAT.findall(plain))
    allowed = _MOST_REPEATS if plain.startswith("^") and "|" not in plain else _MOST_REPEATS - 1
    return (
        repeats > allowed
        or re.search(r"\)[*+?{]", plain) is not None
        or plain.count("|") > _MOST_ALTERNATIVES
        or ("|" in plain and plain.count("(") > 1)
    )
