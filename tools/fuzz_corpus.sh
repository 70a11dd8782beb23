#!/usr/bin/env bash
# Makes fuzz/corpus anew. Takes our own outputs, the files that are there and what the fuzzers have
# found worth keeping (./run fuzz 600), and keeps as few files as reach the same code.
#   tools/fuzz_corpus.sh SEEDS_PROGRAM [NAME...]     SEEDS_PROGRAM: build/release/fuzz/fuzz_seeds
set -euo pipefail
seeds_program=$(readlink -f "${1:?expected the path of fuzz_seeds}")
shift
cd "$(dirname "$(readlink -f "$0")")/.."
build=${TENUTO_FUZZ_BUILD:-build/asan}
names=("$@")
[ ${#names[@]} -gt 0 ] || names=($(cd fuzz && ls *_fuzz.cc | sed 's/_fuzz.cc$//'))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$seeds_program" "$work/seeds"
mkdir -p "$work/seeds/job"
for job in examples/*.toml; do cp "$job" "$work/seeds/job/$(basename "$job" .toml)-example"; done
for name in "${names[@]}"; do
  stored=fuzz/corpus/$name
  mkdir -p "$stored" "$work/kept" "$work/new" "$work/seeds/$name" "build/fuzz/corpus/$name"
  # Files whose name is no hash were put there for a reason and stay. The rest is chosen anew.
  find "$stored" -type f | while read -r file; do
    [[ $(basename "$file") =~ ^[0-9a-f]{40}$ ]] && mv "$file" "$work/new" || cp "$file" "$work/kept"
  done
  cp "$work/seeds/$name"/* "$work/kept" 2>/dev/null || true
  "$build/fuzz/${name}_fuzz" -set_cover_merge=1 -use_counters=0 -max_len=4096 \
    -rss_limit_mb=2048 -timeout=10 "$work/kept" "$work/new" "build/fuzz/corpus/$name" \
    >"$work/log" 2>&1 || {
    tail -n 40 "$work/log" >&2
    exit 1
  }
  cp "$work/kept"/* "$stored"
  rm -rf "$work/kept" "$work/new"
  echo "$name: $(find "$stored" -type f | wc -l) files, $(du -sb "$stored" | cut -f1) bytes"
done
