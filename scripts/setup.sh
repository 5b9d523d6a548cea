#!/usr/bin/env bash
# Installs what the build and the tests need: the Debian packages of scripts/debian-packages.txt and the pinned Python
# packages of requirements-test.txt in .venv. Does nothing, quickly, when everything is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

missing_packages() {
    local package
    for package in $(grep -v '^#' scripts/debian-packages.txt); do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
}

install_debian_packages() {
    local missing as_root=()
    missing=$(missing_packages)
    [ -z "$missing" ] && return
    echo "setup: installing" $missing
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "setup: not root and no sudo; install these packages yourself:" $missing >&2; exit 1; }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing </dev/null >/dev/null
}

# .venv is rebuilt when the pinned list or the interpreter changes. Debian's own interpreter is preferred: it is the one
# that scripts/debian-packages.txt installs.
install_python_environment() {
    local python=/usr/bin/python3 stamp
    [ -x "$python" ] || python=python3
    stamp=$(cat requirements-test.txt <("$python" --version) | sha256sum)
    [ -f .venv/stamp ] && [ "$(cat .venv/stamp)" = "$stamp" ] && return
    echo "setup: creating .venv for the cross-folder tests"
    rm -rf .venv
    "$python" -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: -r requirements-test.txt
    echo "$stamp" >.venv/stamp
}

if command -v dpkg-query >/dev/null; then
    install_debian_packages
else
    echo "setup: not a Debian system; the packages in scripts/debian-packages.txt must be there under your system's names" >&2
fi
install_python_environment
