# Sourced by the scripts of this folder: how they speak and how they fail.

say() { printf '== %s: %s\n' "$(basename "$0")" "$*" >&2; }

die() {
  printf '== %s: FAILED: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Runs a command; on failure says which one and stops.
run() {
  local status=0
  "$@" || status=$?
  ((status == 0)) || die "exit $status from: $*"
}
