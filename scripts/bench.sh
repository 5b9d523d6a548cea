#!/usr/bin/env bash
# bench.sh [FILTER]: builds and runs the micro-benchmarks whose name matches FILTER (a regular expression; all by default).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/build.sh release micro_benchmarks
for program in $(find build/release -type f -executable -name '*_bench' | sort); do
    "$program" --benchmark_filter="${1:-.}"
done
