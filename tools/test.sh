#!/usr/bin/env bash
# tools/test.sh [LEG...]: the default tier, leg by leg; stops at the end with the legs that failed. CI runs the same.
set -uo pipefail
legs=("$@")
[ ${#legs[@]} -gt 0 ] || legs=(lint types unit policy compat mlx torch meta conformance docs-test py313 torch214)
py="$VENV/bin/python"
pytest() { "$py" -m pytest -n "${JOBS:-2}" --dist worksteal -m "not slow" "$@"; }
skip() { echo "skipped: $1"; }

# The first that runs: pyenv puts a python3.13 on the path that only says how to choose a version.
python313() {
  local candidate
  for candidate in "$(command -v python3.13)" "$HOME"/.pyenv/versions/3.13*/bin/python; do
    "$candidate" -c pass 2>/dev/null && { echo "$candidate"; return; }
  done
}

leg() {
  case $1 in
    lint) "$py" -m ruff check . && "$py" -m ruff format --check . ;;
    types) "$py" -m pyright --pythonpath "$py" ;;
    unit | policy | compat | mlx | torch | meta) pytest "tests/$1" ;;
    conformance) "$py" -m conformance --tier quick --jobs "${JOBS:-2}" ;;
    docs-test) pytest tests/docs ;;
    py313)
      local found; found=$(python313)
      [ -n "$found" ] || { skip "no Python 3.13 on this machine, so the newest JAX is not tried"; return 0; }
      PYTHON=$found tools/venv.sh "$VENV313" constraints-py313.txt ".[mlx,cli,dev]" || return 1
      # What depends on versions; the rest of the tiers runs on 3.11. `make matrix` has more rows.
      grep -v '^#' tools/version_files.txt | xargs "$VENV313/bin/python" -m pytest -n "${JOBS:-2}" --dist worksteal -m "not slow" ;;
    torch214)
      [ -x "$VENV214/bin/python" ] || [ "${TORCH214:-0}" = 1 ] || { skip "torch 2.14 is tried where TORCH214=1 (a 5 GB download)"; return 0; }
      tools/venv.sh "$VENV214" constraints-torch214.txt ".[torch,dev]" || { skip "torch 2.14 cannot be installed here"; return 0; }
      "$VENV214/bin/python" -m pytest -m torch214 tests/torch tests/compat ;;
    *) echo "no such leg: $1" >&2; return 2 ;;
  esac
}

failed=()
for name in "${legs[@]}"; do
  echo "== $name"
  start=$SECONDS
  leg "$name" || failed+=("$name")
  echo "== $name: $((SECONDS - start)) s"
done
if [ ${#failed[@]} -gt 0 ]; then echo "failed: ${failed[*]}"; exit 1; fi
echo "all legs passed: ${legs[*]}"
