#!/usr/bin/env bash
# lint.sh [tidy|fix]: the structure lints and the formatting check. `tidy` adds clang-tidy over the files that differ from
# the main branch's last commit (all files when none differ); `fix` rewrites the formatting instead of checking it.
# One line per check; with LINT_RESULTS set, verdicts are also written to that file for the test summary.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mode=${1:-check}
failed=0

check() {  # check NAME COMMAND...
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "ok    $name"
        [ -n "${LINT_RESULTS:-}" ] && echo "ok $name" >>"$LINT_RESULTS"
    else
        failed=1
        echo "FAIL  $name"
        sed 's/^/      /' <<<"$output"
        [ -n "${LINT_RESULTS:-}" ] && echo "FAIL $name" >>"$LINT_RESULTS"
    fi
}

# Not .inc: tables and one-line vocabularies are laid out by hand.
cpp_files() { find src tests demo -name '*.cpp' -o -name '*.h' | sort; }

check_format() {  # names the files; `./dev lint fix` rewrites them
    local differing
    differing=$(clang-format-14 --dry-run $(cpp_files) 2>&1 | sed -nE 's/^([^:]+):[0-9]+:[0-9]+: warning:.*/\1/p' | sort -u)
    [ -z "$differing" ] || { echo "$differing"; return 1; }
}

tidy_files() {
    local changed
    changed=$(git diff --name-only HEAD -- 'src/*.cpp')
    [ -n "$changed" ] && echo "$changed" || git ls-files 'src/*.cpp'
}

[ "$mode" = fix ] && exec clang-format-14 -i $(cpp_files)
check layers python3 scripts/check_layers.py
check sizes python3 scripts/check_sizes.py
check style python3 scripts/check_style.py
check docs python3 scripts/check_docs.py
check format check_format
[ -d build/release ] && check isa-objects scripts/check_isa_objects.sh build/release
if [ "$mode" = tidy ]; then
    [ -f build/dev/compile_commands.json ] || scripts/build.sh dev help >/dev/null
    check clang-tidy clang-tidy-14 -p build/dev --quiet $(tidy_files)
fi
exit $failed
