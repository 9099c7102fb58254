#!/usr/bin/env bash
# tools/venv.sh VENV CONSTRAINTS PIP-ARGUMENT...: make a virtual environment once, and again only when what it holds
# has changed. The stamp is written last, so an interrupted set-up is started anew.
set -euo pipefail
venv=$1 constraints=$2
shift 2
stamp="$venv/.complete"
want=$(cat pyproject.toml requirements-test.txt "$constraints" | sha256sum | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then exit 0; fi
echo "setting up $venv (once)"
"${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=" >&2; exit 1; }
"${PYTHON:-python3}" -m venv "$venv"
# Installed from the requirements, not from the clone: PYTHONPATH names the clone, so several clones can share this.
"$venv/bin/python" tools/requirements.py "$@" > "$venv/requirements.txt"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$constraints" -r "$venv/requirements.txt"
echo "$want" > "$stamp"
