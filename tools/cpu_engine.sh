#!/usr/bin/env bash
#
# cpu_engine.sh VERSION [DIR] - build the real, unmodified SGLang VERSION for a machine without a GPU.
#
# DIR (default: ~/.cache/opsctl/cpu-engine/VERSION) becomes a self-contained environment for Debian
# 12's own /usr/bin/python3.11. Bind it read-only to /opt/sglang/VERSION of a lab host and
#     /opt/sglang/VERSION/bin/python -m sglang.launch_server --model-path /opt/sglang/VERSION/models/tiny-llama ...
# works there, without PYTHONPATH and without anything installed in the host.
#
# Beside the engine and its pinned packages (cpu_engine/requirements-VERSION.txt) DIR holds the
# stand-in for the kernel package, torchvision's two operators, and models/tiny-llama, models/tiny-mla.
#
# Does nothing if DIR's stamp matches; safe to run twice at once. Prints DIR on stdout, talks on
# stderr. Needs Debian 12; installs python3.11 and pip with apt where they are missing (root).
set -euo pipefail
umask 022

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
parts=$here/cpu_engine
version=${1:?usage: cpu_engine.sh VERSION [DIR]}
dir=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/opsctl/cpu-engine/$version}
requirements=$parts/requirements-$version.txt
python=/usr/bin/python3.11

say() { printf 'cpu_engine: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[[ -f $requirements ]] || die "no requirements for $version: $(cd "$parts" && echo requirements-*.txt)"

need_python() {
    if [[ -x $python ]] && $python -m pip --version >/dev/null 2>&1; then return; fi
    say "installing python3.11 and pip"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null >&2
    apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 \
        python3.11 python3-pip </dev/null >&2
}

stamp() {
    (cd "$here" && cat cpu_engine.sh "$requirements" cpu_engine/*.py cpu_engine/sgl_kernel/*.py) |
        sha256sum | cut -d' ' -f1
}

# An empty distribution satisfies the engine's check of its kernel package's version.
distribution() { # SITE NAME VERSION
    local info="$1/${2//-/_}-$3.dist-info"
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$2" "$3" >"$info/METADATA"
}

build() { # NEW
    local new=$1 site=$1/lib/python3.11/site-packages
    rm -rf --one-file-system "$new"
    $python -m venv --without-pip --symlinks "$new"
    # --no-deps: the list is complete, and the engine's own metadata asks for CUDA builds.
    $python -m pip --python "$new/bin/python" install --quiet --no-deps --no-input \
        --requirement "$requirements" </dev/null >&2
    $python -m pip --python "$new/bin/python" install --quiet --no-deps --no-input \
        "sglang==$version" </dev/null >&2
    cp -r "$parts/sgl_kernel" "$site/"
    distribution "$site" sgl-kernel 0.3.21
    distribution "$site" sglang-kernel 0.4.10
    cp "$parts/opsctl_torchvision_ops.py" "$site/"
    echo "import opsctl_torchvision_ops" >"$site/opsctl-torchvision-ops.pth"
    local kind
    for kind in llama mla; do
        HF_HUB_OFFLINE=1 "$new/bin/python" "$parts/make_tiny_model.py" "$new/models/tiny-$kind" "$kind" >&2
    done
    chmod -R a+rX "$new/models" # safetensors writes 0600; a service's user reads them
    # The mount is read-only: whatever is not compiled now is compiled at every start.
    "$new/bin/python" -m compileall -q -j 0 "$site" >/dev/null 2>&1 || true
    stamp >"$new/.stamp"
}

mkdir -p "$(dirname "$dir")"
exec 9>"$dir.lock"
flock 9
if [[ $(cat "$dir/.stamp" 2>/dev/null) != "$(stamp)" ]]; then
    need_python
    started=$SECONDS
    say "building SGLang $version for the CPU in $dir ..."
    build "$dir.new"
    rm -rf --one-file-system "$dir"
    mv "$dir.new" "$dir"
    say "built in $((SECONDS - started)) s, $(du -sm "$dir" | cut -f1) MiB"
fi
echo "$dir"
