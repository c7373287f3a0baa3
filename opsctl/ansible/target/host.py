"""The role `host`: system users, folders, limits, a journal that outlives a reboot."""

from __future__ import annotations

from typing import Any, Dict, List

from opsctl.ansible.target.converge import Host, Refused, run

LIMITS = "/etc/security/limits.d/60-opsctl.conf"
JOURNAL = "/etc/systemd/journald.conf.d/60-opsctl.conf"


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """`args`: users, folders {path: octal mode}, nofile, journal_max_use ("" leaves the journal
    alone), check."""
    host = Host(check=args["check"])
    try:
        _open_files(args["nofile"])
        folders = {path: _mode(path, mode) for path, mode in args["folders"].items()}
        for user in args["users"]:
            if user != "root":
                host.system_user(user)
        for path, mode in folders.items():
            host.folder(path, mode)
        host.file(LIMITS, limits(args["users"], args["nofile"]))
        if args["journal_max_use"]:
            _keep_journal(host, args["journal_max_use"])
    except Refused as problem:
        return host.result(problems=[str(problem)])
    return host.result(warnings=host.warnings)


def _mode(path: str, mode: Any) -> int:
    try:
        return int(mode, 8)
    except (TypeError, ValueError):
        raise Refused(
            f'host_folders: {mode!r} is no mode of {path}: quoted octal digits, like "0755"'
        ) from None


def limits(users: List[str], nofile: int) -> str:
    """For an engine that is started by hand; units carry limits of their own."""
    lines = ["# An engine that is started by hand: host pools are pinned, many files are open."]
    for user in users:
        lines += [f"{user} - memlock unlimited", f"{user} - nofile {nofile}"]
    return "\n".join(lines) + "\n"


def _open_files(nofile: int) -> None:
    """A unit that asks for more than the kernel allows does not start at all."""
    with open("/proc/sys/fs/nr_open", encoding="ascii") as file:
        allowed = int(file.read())
    if allowed < nofile:
        raise Refused(
            f"the kernel allows {allowed} open files a process (fs.nr_open), {nofile} are needed; "
            f"set fs.nr_open={nofile} in /etc/sysctl.d"
        )


def _keep_journal(host: Host, max_use: str) -> None:
    """Storage=persistent makes its folder by itself; --flush moves what was in memory."""
    text = f"[Journal]\nStorage=persistent\nSystemMaxUse={max_use}\n"
    if host.file(JOURNAL, text) and not host.check:
        run(["systemctl", "restart", "systemd-journald.service"])
        run(["journalctl", "--flush"])
