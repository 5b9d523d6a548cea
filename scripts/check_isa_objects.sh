#!/usr/bin/env bash
# check_isa_objects.sh BUILD_DIR: object files compiled for one instruction set must not leak code into the rest of the program.
#
# The linker keeps one copy of a weak (inline, template) function. If the copy from an AVX-512 object wins, a machine without
# AVX-512 runs it and dies. So x_<isa>.cpp may define nothing weak and nothing global outside espalier::kernels::<isa>, and may
# include only C headers, intrinsics and headers of kernels/ and tensor/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1
failed=0
n_objects=0

report() { echo "$1"; failed=1; }

while IFS= read -r object; do
    n_objects=$((n_objects + 1))
    isa=$(sed -E 's/.*_(avx2|avxvnni|avx512|amx)\.cpp\.o$/\1/' <<<"$object")
    while read -r _ type symbol; do
        case "$type" in
            W | V | u) report "$object: weak symbol: $symbol" ;;
            [TDBRGSC]) [[ "$symbol" == espalier::kernels::"$isa"::* ]] || report "$object: outside espalier::kernels::$isa: $symbol" ;;
        esac
    done < <(nm --demangle --defined-only "$object" | grep -E '^[0-9a-f]+ ' || true)
done < <(find "$build" -name '*.o' | grep -E '_(avx2|avxvnni|avx512|amx)\.cpp\.o$' | sort)

while IFS= read -r source; do
    while IFS= read -r header; do
        case "$header" in
            '<cstddef>' | '<cstdint>' | '<stddef.h>' | '<stdint.h>' | '<immintrin.h>') ;;
            '"kernels/'* | '"tensor/'*) ;;
            *) report "$source: includes $header; allowed: C headers, intrinsics, kernels/ and tensor/" ;;
        esac
    done < <(sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]+([<"][^>"]+[>"]).*/\1/p' "$source")
done < <(find src -name '*.cpp' | grep -E '_(avx2|avxvnni|avx512|amx)\.cpp$' | sort)

[ "$n_objects" -gt 0 ] || report "$build: no object file of an instruction set found; build first"
[ "$failed" -eq 0 ] && echo "$n_objects object files"
exit "$failed"
