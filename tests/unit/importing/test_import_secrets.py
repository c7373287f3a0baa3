"""A secret stands nowhere in clear: whatever it is called, whatever it looks like, and wherever
else it stands in what was imported."""

from __future__ import annotations

import json
import random
import string
from typing import Any

import pytest

from opsctl import engine
from opsctl.importing import Asked, Imported, from_text
from opsctl.importing.secretnames import by_name
from opsctl.importing.secrets import by_form, secret_flag
from opsctl.importing.written import description
from opsctl.views.importing import document

PYTHON = "/opt/sglang/0.5.9/bin/python -m sglang.launch_server --model-path /srv/models/m"
KEY = "sesame-open-77"


def take(text: str, **asked: Any) -> Imported:
    return from_text([("", text)], asked=Asked(**{"version": "0.5.9", **asked}))


def shown(found: Imported) -> str:
    """All that anybody sees of it, but the file for the vault."""
    return f"{found!r}{json.dumps(document(found))}{description(found)}"


NAMED = [
    *("SLACK_WEBHOOK", "SLACK_WEBHOOK_URL", "MY_LICENSE", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"),
    *("AWS_SOMETHING_NEW", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "WANDB_KEY"),
    *("OTEL_EXPORTER_OTLP_HEADERS", "DB_PASSWORD_2", "DATABASE_DSN", "MY_SECRET_VALUE", "X_COOKIE"),
    *("AZURE_STORAGE_CONNECTION_STRING", "SIGNING_KEY", "API_KEY_2", "GITHUB_PAT", "X_AUTH"),
    *("API_KEYS", "TOKENS", "AUTH_TOKENS", "MYSECRETS", "PGPASSWORD", "A_PASSWD", "DB_PWD"),
    *("SSH_PASSPHRASE", "MYPASSPHRASE", "CREDENTIALS", "HFTOKEN", "DBPASS", "secretKey"),
    *("accessKey", "dbPassword", "SGLANG_S3_SECRET_ACCESS_KEY"),
]
PUBLIC = [
    *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"),
    *("NCCL_IB_HCA", "PATH", "SGLANG_MAX_TOKENS", "NUM_TOKENS", "MONKEY", "KEY_FILE", "DB_NAME"),
    *("SSL_KEY_PATH", "DISPATCH", "COMPAT", "SGLANG_TOKENIZER", "KEYBOARD", "PASSED", "é00'"),
    *("max_tokens", "num_tokens", "maxTokens", "TOKENIZERS_PARALLELISM", "eos_token", "image_keys"),
    *("additional_special_tokens", "prefix_keys", "prefetch_timeout_per_ki_token", "cache_key"),
    *(
        "SGLANG_USE_AITER_FP8_PER_TOKEN",
        "SGLANG_LOG_DECODE_GRAPH_KEY",
        "SGLANG_LOG_REQUEST_HEADERS",
    ),
    *("BYPASS", "COMPASS", "TURKEY", "PWD", "OLDPWD", "publicKey", "SGLANG_ROUTING_KEY_POLICY"),
]


@pytest.mark.parametrize("name", NAMED)
def test_by_its_name(name: str) -> None:
    found = take(f"{name}=plain-value-1 {PYTHON}")
    assert found.service is not None
    assert set(found.secrets.values()) == {"plain-value-1"}
    assert list(found.service["secrets"]["env"]) == [name]
    assert "plain-value-1" not in shown(found)


@pytest.mark.parametrize("name", PUBLIC)
def test_names_that_say_nothing(name: str) -> None:
    assert not by_name(name)


FORMED = [
    *("hf_abcdefghijkl", "sk-abcdefghijklmnop1", "ghp_abcdefghijklmnop12", "AKIAABCDEFGHIJKLMNOP"),
    *("xoxb-1234567890-abc", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def_g"),
    *("glpat-abcdefghij123456", "eyJhbGciOiJIUzI1NiJ9", "AIza" + "b1" * 18),
    *("github_pat_" + "a1" * 12, "sk_live_abcdefgh12"),
    *("redis://u:pa55@h/0", "https://0123456789abcdef@h/x", "Bearer abcdefgh12", "bearer abcdef12"),
    *("Basic QWxhZGRpbjpvcGVu", "https://hooks.example.com/services/T0/B0/abc"),
    *("https://h/x?sig=abcd1234&y=1", "https://h/?access_token=abcdef", "https://h/webhook/1/x"),
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----",
    *("9f8g7h6j5k4l3m2n1b0vAqZx", "0123456789abcdef0123456789abcdef"),
    "A1b2C3d4E5f6G7h8I9j0K1l2/M3n+4o5P6q7",
    "123e4567-e89b-42d3-a456-426614174000",
]  # fmt: skip


@pytest.mark.parametrize("value", FORMED)
def test_by_its_form(value: str) -> None:
    quoted = "'" + value + "'"
    found = take(f"A_THING={quoted} {PYTHON}")
    assert found.service is not None, [str(p) for p in found.problems]
    assert found.secrets == {"vault_m_a_thing": value}
    assert value not in shown(found)
    # in a flag, too, where it becomes a variable; and in a word that belongs to nothing
    flag = f"{PYTHON} --hicache-storage-backend-extra-config '{json.dumps({'a': value})}'"
    found = take(flag)
    assert found.service is not None, [str(p) for p in found.problems]
    assert value in found.secrets.values() and value not in shown(found)
    assert value not in shown(take(f"{PYTHON} {quoted}"))


PLAIN = [
    *("/srv/models/DeepSeek-V3-0324-AWQ-w4a16", "meta-llama/Llama-3.1-405B-Instruct-FP8-dynamic"),
    *("/root/.cache/huggingface/hub/models--a/snapshots/0123456789abcdef0123456789abcdef01234567",),
    *("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "mlx5_0,mlx5_1,mlx5_bond_2", "10.0.0.1:5000"),
    *("expandable_segments:True,garbage_collection_threshold:0.8", "https://mirror.example/x/y"),
    *("/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/usr/lib/x86_64-linux-gnu", "2026-11-30T00"),
    *("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "1,2,4,8,16,32,64,128,256,512,1024,2048,4096"),
    *("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5-FP8", "a-long-name-of-many-small-words-in-a-row"),
]


@pytest.mark.parametrize("value", PLAIN)
def test_forms_that_say_nothing(value: str) -> None:
    assert not by_form(value)


@pytest.mark.parametrize(
    "value",
    ["Environment=HF_TOKEN=222222222222", "--tp 2 --api-key sesame1", "user=a;password=b12c"],
)
def test_by_a_name_within_a_text(value: str) -> None:
    """Found by the drill of a hundred thousand imports."""
    secret = value.rpartition("=")[2].rpartition(" ")[2]
    for text in (f"EXTRA='{value}' {PYTHON}", f"{PYTHON} --weight-version '{value}'"):
        found = take(text)
        assert found.service is not None, [str(p) for p in found.problems]
        assert list(found.secrets.values()) == [value] and secret not in shown(found)


def test_what_chance_makes_is_seen() -> None:
    """Base64 and hex of usual lengths; the seed keeps the sample."""
    chance = random.Random(7)
    letters = string.ascii_letters + string.digits
    for alphabet, length in (
        (letters, 24),
        (letters, 32),
        (letters + "-_", 43),
        ("0123456789abcdef", 32),
    ):
        made = ["".join(chance.choice(alphabet) for _ in range(length)) for _ in range(500)]
        assert sum(map(by_form, made)) >= 485


MANY = [  # JSON of a flag, and the secrets in it
    ({"tokens": ["alpha-beta", "gamma"]}, {"alpha-beta", "gamma"}),
    ({"keys": {"alice": "alpha-beta"}, "port": 8}, {"alpha-beta"}),
    ({"credentials": {"user": "me", "secretKey": "alpha-beta"}}, {"me", "alpha-beta"}),
    ({"a": {"apiKeys": ["alpha-beta"]}, "accessKey": "gamma"}, {"alpha-beta", "gamma"}),
    ({"max_tokens": "8", "eos_token": "</s>", "stop_tokens": ["a"], "tensor_keys": ["b"]}, set()),
]


@pytest.mark.parametrize(("value", "wanted"), MANY)
def test_lists_and_tables_of_secrets_in_json(value: dict[str, Any], wanted: set[str]) -> None:
    found = take(f"{PYTHON} --hicache-storage-backend-extra-config '{json.dumps(value)}'")
    assert found.service is not None, [str(p) for p in found.problems]
    assert set(found.secrets.values()) == wanted
    assert not any(len(secret) > 3 and secret in shown(found) for secret in wanted)
    broken = take(f"{PYTHON} --nonsense '{json.dumps(value)[:-1]}'")
    assert not any(len(secret) > 7 and secret in shown(broken) for secret in wanted)


@pytest.mark.parametrize(
    ("version", "flag", "told"),
    [
        ("0.5.23", "hicache-storage-backend-extra-config", "-config: @FILE.json in its place"),
        ("0.5.5", "hicache-storage-backend-extra-config", "on its command line only"),
        ("0.5.23", "json-model-override-args", "no more rights than it needs"),
    ],
)
def test_a_secret_in_a_flag_is_told_with_what_to_do(version: str, flag: str, told: str) -> None:
    found = take(f'{PYTHON} --{flag} \'{{"accessKey": "alpha-beta"}}\'', version=version)
    (note,) = [n for n in found.notes if n.what == f"{flag}: accessKey"]
    assert told in note.why


OURS = [  # a secret that is also a word of ours, and what the import says of it or beside it
    ("[Service]\nPassEnvironment=X\nExecStart={} --api-key Environment\n", "PassEnvironment=X: "),
    ("[Service]\nIPAddressAllow=any\nExecStart={} --api-key traffic\n", "sorts no traffic"),
    ("python -m sglang.launch_server --model-path /srv/m --api-key sglang", "/opt/sglang/0.5.9"),
    ("{} --api-key unit --model-path unit --model-path /srv/m", "--model-path ***: is given again"),
    ("{} --tp 'x --api-key aZesame Zesame9'", "(value: x --api-key *** …)"),
    ("{} --tp 'x --api-key aZesame Zesame9' --tp 8", "--tp x --api-key *** …: is given again"),
    ("[Service]\nMemoryMax=--token Zesame9 more\nExecStart={}\n", "MemoryMax=--token *** …"),
    ("[Service]\nEnvironment=API_KEY=\nPassEnvironment=X\nExecStart={}", "PassEnvironment=X: "),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), OURS)
def test_only_their_words_are_masked(text: str, told: str) -> None:
    found = take(text.format(PYTHON))
    notes = [f"{note.what}: {note.why}" for note in found.notes]
    said = "\n".join([*notes, *map(str, found.problems), *(r.setting for r in found.risks)])
    assert told in said
    assert "Zesame9" not in shown(found) and "\x0e" not in said and "\x0f" not in said


def test_a_secret_that_is_one_of_our_own_words_is_masked_where_they_wrote_it() -> None:
    asked = Asked(version="0.5.9")
    text = "python -m sglang.launch_server --model-path /m; sudo --api-key dropped"
    (problem,) = from_text([("", text)], "auto", asked).problems
    assert problem.message == "also runs *** (line 1), which a service does not"


def test_a_revision_is_no_secret() -> None:
    found = take(f"{PYTHON} --revision 0123456789abcdef0123456789abcdef01234567")
    assert found.service is not None and not found.secrets


def test_tokens_that_are_counted_are_no_secrets() -> None:
    named = {
        name
        for version in engine.versions()
        for name, flag in engine.catalogue(version).flags.items()
        if secret_flag(flag)
    }
    assert named == {"api-key", "admin-api-key", "ssl-keyfile-password"}


ELSEWHERE = [
    (f"--served-model-name {KEY}", "model.served_name"),
    (f"--served-model-name my-{KEY}-model", "model.served_name"),
    (f"--chat-template {KEY}", "flags.chat-template"),
    (f"""--hicache-storage-backend-extra-config '{{"a": ["x{KEY}"]}}'""",
     "flags.hicache-storage-backend-extra-config.a"),
    (f"--lora-paths a=/srv/{KEY} b=/x", "flags.lora-paths"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "place"), ELSEWHERE)
def test_a_secret_that_also_stands_elsewhere(args: str, place: str) -> None:
    found = take(f"{PYTHON} --api-key {KEY} {args}")
    assert found.service is not None, [str(p) for p in found.problems]
    assert KEY not in shown(found)
    notes = "\n".join(f"{note.what}: {note.why}" for note in found.notes)
    assert f"{place}: {{{{ vault_m_" in notes and "stays readable on the host there" in notes
    assert f"api-key: it also stands in {place}" in notes and "put a new one" in notes


def test_a_variable_that_holds_another_secret_is_one() -> None:
    found = take(f"X_URL=http://h/{KEY}/y {PYTHON} --api-key {KEY}")
    assert found.service is not None
    assert found.service["secrets"]["env"] == {"X_URL": "{{ vault_m_x_url }}"}
    assert "env" not in found.service and KEY not in shown(found)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"""{PYTHON} --api-key {KEY} --json-model-override-args '{{"{KEY}": 1}}'""",
         "flags.json-model-override-args.***"),
        (f"{PYTHON} --api-key 12345678901 --random-seed 12345678901", "flags.random-seed"),
        (f"sesame_open_77=1 {PYTHON} --api-key sesame_open_77", "env.***"),
    ],
)  # fmt: skip
def test_what_cannot_be_separated_is_refused(text: str, key: str) -> None:
    found = take(text)
    assert found.service is None
    assert any(p.key == key and "cannot be moved" in p.message for p in found.problems)
    assert KEY not in shown(found) and "12345678901" not in shown(found)


def test_no_name_is_made_of_a_secret() -> None:
    text = f"python -m sglang.launch_server --served-model-name {KEY} --api-key {KEY}"
    found = take(f"{text} --model-path /srv/models/m")
    assert found.name == "m" and KEY not in shown(found)
    found = take(f"docker run --name hf_abcdefghijkl -v /m:/m x {text} --model-path /m/k")
    assert found.name == "k"


STRAYS = [
    ("--api-key my zesame words9", "argument 5, after --api-key: a word"),
    ("Stray9SecretWord", "argument 3, after --model-path: a word of 16 characters (***"),
    ("hunter2hunter2", "a word of 14 characters (***"),
    ("222222222222", "a word of 12 characters (***"),
    ("--trust-remote-code=Stray9SecretWord", "--trust-remote-code takes no value (value: ***)"),
    ("True", "'True' belongs to no flag"),
    ("/srv/models/k", "'/srv/models/k' belongs to no flag"),
]


@pytest.mark.parametrize(("args", "message"), STRAYS)
def test_words_that_belong_to_nothing(args: str, message: str) -> None:
    found = take(f"{PYTHON} {args}")
    assert message in "\n".join(str(p) for p in found.problems)
    for word in ("zesame", "words9", "Stray9", "hunter2"):
        assert word not in shown(found).replace("may be a secret", "").replace(
            "part of the secret", ""
        ).replace('"secrets"', "")


def test_many_words_are_told_briefly() -> None:
    found = take(f"{PYTHON} {' '.join(map(str, range(1000)))}")
    assert len(found.problems) == 11
    assert "1000 words belong to no flag" in str(found.problems[0])
