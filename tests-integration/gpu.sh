#!/usr/bin/env bash
# Tests and benchmark on a CUDA machine, without network and without nox.
#
#   tests-integration/gpu.sh OUT_DIR [PART ...] [-- PYTEST_ARGUMENT ...]
#
# Parts:
#   ffi, torch, jax  the gpu tests of one package
#   integration      the gpu tests that take several packages
#   tests            all of these
#   bench            the side-by-side benchmark
#   executor         the benchmark of the executor and the plan store
#   faults           which known faults this cuDNN shows
#   all              everything (default)
#
# Needed: Python with torch, jax, pytest, numpy and nvidia-cudnn-frontend; what pip did not install may
# come from PYTHONPATH. Our packages are taken from this tree. sdpa-ffi is compiled into build/gpu, which
# takes cmake, ninja, g++ and CUDA's headers, unless SDPA_FFI_WHEEL names a wheel of it.
#
# Written: OUT_DIR/results.json (machine, versions, counts of tests, every sample), executor.json, and logs.
# Exit status: 0 if every chosen part did what it should; a part without a single passed test fails.
#
# Environment: PYTHON (python3), SDPA_FFI_WHEEL, SDPA_COMMIT (recorded where there is no git),
# SDPA_PART_SECONDS (480: what one part may take), SDPA_WORKERS (processes of a part's tests where
# pytest-xdist is installed; by default one for each core, 8 at most. Most of the time is the oracle's).
#
# Warnings are errors in CI, where versions are pinned. Here they are printed, because frameworks of other
# versions warn of things that are not ours; those that our own modules issue remain errors.

set -euo pipefail

usage() {
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

die() {
  echo "gpu.sh: $*" >&2
  exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
limit=${SDPA_PART_SECONDS:-480}
work=$root/build/gpu

case ${1:-} in
  "" | -h | --help)
    usage
    exit 2
    ;;
esac
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift

tests=(ffi torch jax integration)
parts=()
pytest_arguments=()
while (($#)); do
  case $1 in
    tests) parts+=("${tests[@]}") ;;
    all) parts+=("${tests[@]}" bench executor faults) ;;
    ffi | torch | jax | integration | bench | executor | faults) parts+=("$1") ;;
    --)
      shift
      pytest_arguments=("$@")
      break
      ;;
    *) die "unknown part '$1'; there are ${tests[*]}, tests, bench, executor, faults, all" ;;
  esac
  shift
done
((${#parts[@]})) || parts=("${tests[@]}" bench executor faults)

# ------------------------------------------------------------------------------- the executor

# Sets `executor` to a folder that holds the package sdpa_ffi, compiled.
provide_executor() {
  executor=$work/executor
  rm -rf "$executor"
  mkdir -p "$executor"
  if [[ -n ${SDPA_FFI_WHEEL:-} ]]; then
    [[ -f $SDPA_FFI_WHEEL ]] || die "SDPA_FFI_WHEEL names no file: $SDPA_FFI_WHEEL"
    "$python" -m zipfile -e "$SDPA_FFI_WHEEL" "$executor"
    return
  fi
  local tool
  for tool in cmake ninja g++; do
    command -v "$tool" >/dev/null || die "$tool was not found; install it or set SDPA_FFI_WHEEL"
  done
  {
    cmake -S "$root/packages/sdpa-ffi" -B "$work/cmake" -G Ninja \
      -DPython_EXECUTABLE="$("$python" -c 'import sys; print(sys.executable)')" &&
      cmake --build "$work/cmake" &&
      cmake --install "$work/cmake" --prefix "$executor"
  } >"$out/build.log" 2>&1 || {
    tail -n 40 "$out/build.log" >&2
    die "the executor does not build; the whole log is in build.log"
  }
  cp "$root"/packages/sdpa-ffi/src/sdpa_ffi/*.py "$executor/sdpa_ffi/"
}

# --------------------------------------------------------------------------------------- parts

# Sets `parallel` to pytest's arguments for running tests side by side, if it can.
choose_workers() {
  parallel=()
  local cores
  cores=$(nproc)
  if "$python" -c 'import xdist' 2>/dev/null; then
    parallel=(-n "${SDPA_WORKERS:-$((cores < 8 ? cores : 8))}")
  else
    echo "gpu.sh: without pytest-xdist a part can take more than $limit s" >&2
  fi
}

run_pytest() { # NAME PATH ...
  local name=$1 status=0
  shift
  rm -f "$out/tests-$name.xml"
  # Exit status 5, nothing collected, is a failure like any other.
  timeout --signal=INT --kill-after=20 "$limit" \
    "$python" -m pytest -p no:cacheprovider -m gpu -q --durations=15 \
    -o minversion=7 -o filterwarnings="$warnings" \
    --junitxml="$out/tests-$name.xml" "$@" ${parallel[@]+"${parallel[@]}"} ${pytest_arguments[@]+"${pytest_arguments[@]}"} \
    2>&1 | tee "$out/tests-$name.log" || status=$?
  if ((status == 0)) && ! grep -qE '[0-9]+ passed' "$out/tests-$name.log"; then
    echo "gpu.sh: no test of '$name' passed" >&2
    status=1
  fi
  return "$status"
}

run_bench() {
  rm -f "$out/bench.json"
  timeout --signal=INT --kill-after=20 "$limit" \
    "$python" -m bench --out "$out/bench.json" 2>&1 | tee "$out/bench.log"
}

run_module() { # MODULE LOG ARGUMENT ...
  local module=$1 log=$2
  shift 2
  timeout --signal=INT --kill-after=20 "$limit" "$python" -m "$module" "$@" 2>&1 | tee "$out/$log"
}

run_part() {
  case $1 in
    bench) run_bench ;;
    executor) run_module bench.executor executor.log --out "$out/executor.json" ;;
    faults) run_module cudnn_faults faults.log ;;
    integration) run_pytest integration tests-integration ;;
    *) run_pytest "$1" "packages/sdpa-$1" ;;
  esac
}

warnings='default
error:::sdpa_
error::sdpa_core.SlowAttentionWarning'

cd "$root"
choose_workers
provide_executor
PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$executor
for package in core torch jax cutedsl; do
  PYTHONPATH+=:$root/packages/sdpa-$package/src
done
export PYTHONPATH+=:$root/tests-integration
export XLA_PYTHON_CLIENT_PREALLOCATE=false # torch and JAX share the device's memory
export PYTHONDONTWRITEBYTECODE=1

"$python" -m bench.machine >"$out/machine.json" || die "something is missing, see above"

failed=()
for part in "${parts[@]}"; do
  start=$SECONDS
  echo "== $part"
  run_part "$part" || failed+=("$part")
  echo "== $part took $((SECONDS - start)) s"
done

"$python" -m bench.results "$out" \
  --command "tests-integration/gpu.sh OUT_DIR ${parts[*]}${pytest_arguments[*]:+ -- ${pytest_arguments[*]}}"
((${#failed[@]} == 0)) || die "failed: ${failed[*]}"
