#!/usr/bin/env bash
# fuzz.sh [SECONDS]: builds the fuzz targets with clang and runs each for SECONDS (60), from the corpus in
# tests/fuzz/corpus/<name>. What is found new stays in build/fuzz; a crash is printed with the file that causes it.
# One line per target; with FUZZ_RESULTS set, verdicts are also written to that file for the test summary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
scripts/build.sh fuzz fuzz_targets
failed=0
for program in $(find build/fuzz/tests/fuzz -maxdepth 1 -type f -executable -name '*_fuzz' | sort); do
    name=$(basename "$program")
    corpus=tests/fuzz/corpus/${name%_fuzz}
    found=build/fuzz/found/${name%_fuzz}
    log=build/fuzz/$name.log
    mkdir -p "$found"
    # 64 KiB inputs reach every limit that the parsers have without spending the time on copying.
    if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3072 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="$found/" "$found" $([ -d "$corpus" ] && echo "$corpus") >"$log" 2>&1; then
        verdict=ok
    else
        verdict=FAIL
        failed=1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$verdict $name: ${runs:-?} runs in $seconds s"
    [ "$verdict" = FAIL ] && tail -n 40 "$log"
    [ -n "${FUZZ_RESULTS:-}" ] && echo "$verdict $name" >>"$FUZZ_RESULTS"
done
exit $failed
