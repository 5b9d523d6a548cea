#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures when needed and builds. Uses ccache if it is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift

configure=(cmake --preset "$preset")
if command -v ccache >/dev/null; then
    configure+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    # Another clone of the same sources finds the same objects.
    export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
fi
log=build/$preset.configure.log
mkdir -p build
"${configure[@]}" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }

targets=()
[ $# -gt 0 ] && targets=(--target "$@")
# Sources that need most of a gigabyte each: no more jobs than memory allows.
memory_gib=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo 2>/dev/null || echo 4)
jobs=$(nproc)
[ "$jobs" -gt "$memory_gib" ] && jobs=$((memory_gib > 0 ? memory_gib : 1))
exec cmake --build --preset "$preset" --parallel "$jobs" "${targets[@]}"
