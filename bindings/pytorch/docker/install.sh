#!/usr/bin/env bash
# A virtual environment with PyTorch and torch_xla over Weft, and the self-test in it. The image (Dockerfile) and the tests
# (tests/pytorch/wheel) are made by this same script.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bindings/pytorch/docker/install.sh [--torch REQUIREMENT | --no-torch] [--no-selftest] --wheels DIR VENV

  --wheels DIR         the folder with the two wheels of bindings/pytorch/wheel.py
  --torch REQUIREMENT  what pip installs (torch: the newest)
  --no-torch           PyTorch is there already, or will be
  --no-selftest        do not run python -m torch_xla.selftest
  VENV                 the environment; it is made where it is not there
TEXT
}

say() { printf 'install: %s\n' "$*" >&2; }
die() { printf 'install: %s\n' "$*" >&2; exit 1; }
wrong() { printf 'install: %s\n' "$*" >&2; usage >&2; exit 2; }
torch='torch' selftest=1 wheels='' venv=''
while [ $# -gt 0 ]; do
  case $1 in
    --torch) [ $# -ge 2 ] || wrong "--torch needs a requirement"; torch=$2; shift ;;
    --wheels) [ $# -ge 2 ] || wrong "--wheels needs a folder"; wheels=$2; shift ;;
    --no-torch) torch='' ;;
    --no-selftest) selftest=0 ;;
    -h|--help) usage; exit 0 ;;
    -*) wrong "unknown option '$1'" ;;
    *) [ -z "$venv" ] || wrong "one environment, not '$venv' and '$1'"; venv=$1 ;;
  esac
  shift
done
[ -n "$wheels" ] || wrong "--wheels is needed"
[ -n "$venv" ] || wrong "the environment's folder is needed"

shopt -s nullglob
package=("$wheels"/libweft_torch-*.whl) name=("$wheels"/torch_xla-*.whl)
[ ${#package[@]} = 1 ] && [ ${#name[@]} = 1 ] ||
  die "$wheels has ${#package[@]} wheels of libweft_torch and ${#name[@]} of torch_xla, not one of each" \
    "(bindings/pytorch/wheel.py makes them)"

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check -q)
[ -z "$torch" ] || "${pip[@]}" install "$torch" numpy
# The name first: where it takes the place of PyTorch/XLA's own distribution, that one's files go before ours come.
"${pip[@]}" install --no-index --no-deps --force-reinstall "${name[0]}"
"${pip[@]}" install --no-index --no-deps --force-reinstall "${package[0]}"
[ -z "$torch" ] || "${pip[@]}" check
"$venv/bin/python" - <<'PY'
import importlib.metadata
print(*(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "torch_xla", "libweft-torch")), sep=", ")
PY
[ $selftest = 0 ] || (cd / && "$venv/bin/python" -m torch_xla.selftest)
say "$venv is ready: $venv/bin/python, or source $venv/bin/activate"
