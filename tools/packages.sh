#!/usr/bin/env bash
# The Debian packages that the lab, the linters and the CPU engine need on this machine.
# Installs only what is missing, so that it costs nothing on a machine that has them.
# Arguments: more of them.
set -euo pipefail
need=(systemd-container mmdebstrap iproute2 openssh-client nftables shellcheck libnuma1 python3-venv dpkg-dev gnupg "$@")
missing=()
for package in "${need[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0
echo "installing Debian packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq </dev/null
apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" </dev/null >&2
