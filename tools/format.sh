#!/bin/sh
# Formats every C++ file in place, or with --check only says which ones are not formatted.
#   tools/format.sh [--check] [CLANG_FORMAT]
set -eu
cd "$(dirname "$0")/.."
options=-i
if [ "${1:-}" = "--check" ]; then
  options='--dry-run -Werror'
  shift
fi
format=${1:-clang-format-14}
# Version 14 on every machine: another one formats differently.
"$format" --version | grep -q 'version 14\.' || {
  echo "format.sh: $format is not clang-format 14: install clang-format-14" >&2
  exit 1
}
find src tests bench fuzz examples python -name '*.h' -o -name '*.cc' | sort |
  xargs "$format" $options
