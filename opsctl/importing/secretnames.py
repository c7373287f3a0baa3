"""Which names say that a secret stands behind them: of variables, flags and keys of JSON."""

from __future__ import annotations

import re

from opsctl.spec.kinds import secret_name, text_token

# Beyond the names that a description refuses in `env` (spec.kinds): they would be taken there.
_NAME = re.compile(
    r"(PASS_?WORDS?|PASSWDS?|PASS_?PHRASES?|SECRETS?|CREDENTIALS?)(_?[0-9]+)?$"
    r"|(^|_)(PASS|PASS_?CODE|AUTH(ORIZATION)?|BEARER|WEBHOOKS?(_URL)?|COOKIES?|LICEN[SC]E|HEADERS"
    r"|DSN|CONN(ECTION)?_?STR(ING)?|JWT|PAT|SAS|SIGNATURE|SALT|KEYS?|TOKENS"
    r"|(TOKEN|API_?KEY|KEY)_?[0-9]+)$"
    r"|(^|_)(SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE)_|(?<!SA)CRED(ENTIAL)?S?(_|$)|PW$"
    r"|(?<!^)(?<!^OLD)PWD$|PASS$|TOKEN$"
    r"|(API|AUTH|ACCESS|SECRET|PRIVATE|SIGNING|MASTER)KEYS?$|(API|AUTH|ACCESS|HF|HUB|BOT)TOKENS$"
)
# Whose keys and tokens are many: elsewhere tokens are counted, and keys are those of a table.
_OWNERS = (
    r"(API|AUTH|ACCESS|BEARER|REFRESH|SESSION|SECRET|PRIVATE|SIGNING|ENCRYPTION|MASTER|SERVICE"
    r"|LICEN[SC]E|USER|CLIENT|ADMIN|VALID|MY|HF|HUB|GITHUB|GITLAB)"
)
_MANY = re.compile(rf"^(KEYS|TOKENS)$|(^|_){_OWNERS}_?(KEYS|TOKENS)$")
# Keys by which something is found or ordered; what the engine logs of requests; settings of a unit
# that name a credential and its file; words that end as a secret's name does.
_PUBLIC = re.compile(
    r"(^|_)(CACHE|ROUTING|EXTRA|GRAPH|PAIR|REGISTER|METADATA|SORT|PRIMARY|PUBLIC|PARTITION|STORED"
    r"|CAMERA|HIGH|LOW|COND)_KEY$|^SGLANG_LOG_|^(LOAD|IMPORT)_CREDENTIAL(_ENCRYPTED)?$|(BY|COM)PASS$"
)
# Of AWS only these are told to everybody: a name that is missing here is taken for a secret.
_AWS = re.compile(r"AWS_.*")
_AWS_PUBLIC = re.compile(
    r"AWS_(.*REGION|.*PROFILE|ENDPOINT_URL.*|.*_(FILE|PATH|BUNDLE|DISABLED|ENDPOINT|MODE|NAME|ARN"
    r"|TIMEOUT|ATTEMPTS|NUM_ATTEMPTS|STYLE|OUTPUT|URI)|REQUEST_CHECKSUM.*|RESPONSE_CHECKSUM.*)"
)
# A name that ends so says where a secret is, or of which kind.
_PLACE = re.compile(
    r"_(FILE|PATH|DIR|DIRECTORY|FOLDER|NAME|TYPE|ALGORITHM|LENGTH|SIZE|ENABLED|DISABLED)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def by_name(name: str) -> bool:
    """Of any spelling: SECRET_KEY, secret-key and secretKey are one name."""
    upper = _upper(name)
    if _AWS.fullmatch(upper):
        return _AWS_PUBLIC.fullmatch(upper) is None
    if secret_name(upper):
        return True
    if (
        _PLACE.search(upper)
        or _PUBLIC.search(upper)
        or text_token(upper)
        or _NAME.search(upper) is None
    ):
        return False
    return not upper.endswith(("KEYS", "TOKENS")) or many(name)


def many(name: str) -> bool:
    """Whether several secrets stand there: a list, or a table by whose they are."""
    upper = _upper(name)
    if upper.endswith(("KEYS", "TOKENS")):
        return _MANY.search(upper) is not None
    return upper.endswith(("PASSWORDS", "SECRETS", "CREDENTIALS"))


def _upper(name: str) -> str:
    return re.sub(r"[^A-Z0-9_]", "_", _CAMEL.sub("_", name).upper())
