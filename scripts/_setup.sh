# Sourced by the scripts beside it: makes .venv and installs into it. Bash, any working directory.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
PY=$VENV/bin/python

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$@"; exit 1; }

fits() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; }

find_python() {
    local name
    if [[ -n ${PYTHON:-} ]]; then
        fits "$PYTHON" || die "PYTHON=$PYTHON is no Python 3.11 or 3.12"
        echo "$PYTHON"
        return
    fi
    for name in python3.11 python3.12 python3 python; do
        if fits "$name"; then
            echo "$name"
            return
        fi
    done
    die "needs Python 3.11 or 3.12, and found none as python3.11, python3.12, python3 or python: install one," \
        "or name it: PYTHON=/path/to/python ${0##*/}"
}

make_venv() {
    local python
    if [[ -x $PY ]] && "$PY" -c '' 2>/dev/null; then
        fits "$PY" || die "$VENV holds $("$PY" --version), needed is 3.11 or 3.12: remove that folder and run this again"
        "$PY" -m pip --version >/dev/null 2>&1 && return
    fi
    python=$(find_python)
    say "making .venv with $("$python" --version)"
    # Over a folder that is there, this finishes what an interrupted run began; it installs nothing again.
    "$python" -m venv "$VENV" || die "could not make $VENV (the error is above)." \
        "On Debian and Ubuntu the venv module is a package of its own, python3-venv"
}

torch_version() {
    "$PY" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null
}

pip_install() {
    "$PY" -m pip install --quiet --disable-pip-version-check "$@" ||
        die "the install failed; pip's error is above. With the network and the disk in order, run this again:" \
            "it goes on where it stopped"
}

# What an install depends on: the same text, nothing to do.
fingerprint() {
    "$PY" - "$ROOT" <<'PY'
import hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
parts = [sys.version, str(root), *(root.joinpath(name).read_text() for name in ("pyproject.toml", "constraints.txt"))]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PY
}

# install [EXTRA]: OpenTinker, editable, into .venv; with an extra, that too.
install() {
    local extra=${1:-} print stamp pins=$VENV/constraints.txt
    stamp=$VENV/installed${extra:+-$extra}
    make_venv
    print=$(fingerprint)
    [[ -f $stamp && $(<"$stamp") == "$print" ]] && return

    if ! torch_version >/dev/null; then
        say "installing torch first${OPENTINKER_TORCH_INDEX:+ from OPENTINKER_TORCH_INDEX}." \
            "A CUDA build is more than half a gigabyte; OPENTINKER_TORCH_INDEX=URL names the index of another build"
        pip_install -c "$ROOT/constraints.txt" ${OPENTINKER_TORCH_INDEX:+--index-url "$OPENTINKER_TORCH_INDEX"} torch
    fi
    # A torch that was there already stays as it is.
    { grep -v '^torch==' "$ROOT/constraints.txt"; echo "torch==$(torch_version)"; } >"$pins"
    say "installing opentinker${extra:+[$extra]} with torch $(torch_version); the first time takes minutes"
    pip_install -c "$pins" -e "$ROOT${extra:+[$extra]}"
    echo "$print" >"$stamp"
    [[ -z $extra ]] || echo "$print" >"$VENV/installed"  # an extra brings the rest with it
}

find_browser() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" && return
    done
    return 1
}

# browser: a Chromium for the tests that open a page, where there is none and the system may install one: Debian or a
# system like it, as root or with a sudo that asks nothing. Tried once; without one those tests are skipped.
# OPENTINKER_BROWSER=none leaves the system as it is.
browser() {
    local tried=$VENV/browser-tried log=$VENV/browser.log without="the tests that open a page are skipped" root=()
    find_browser >/dev/null && return
    if [[ ${OPENTINKER_BROWSER:-} == none ]]; then
        say "$without, as OPENTINKER_BROWSER=none asks"
        return
    fi
    [[ $(id -u) == 0 ]] || root=(sudo -n)
    if ! command -v apt-get >/dev/null || ! "${root[@]}" true 2>/dev/null; then
        say "no Chromium and no right to install one: $without. Install the package chromium, or Chrome, to run them"
        return
    fi
    if [[ -f $tried ]]; then
        say "no Chromium (an install failed, see $log): $without. Remove $tried to try again"
        return
    fi
    say "installing Chromium with apt-get for the tests that open a page; it takes about a minute, once"
    : >"$tried"
    if "${root[@]}" env DEBIAN_FRONTEND=noninteractive bash -c \
        'apt-get update -q && apt-get install -q -y --no-install-recommends chromium' >"$log" 2>&1 </dev/null &&
        find_browser >/dev/null; then
        rm -f "$tried"
    else
        say "Chromium could not be installed, see $log: $without"
    fi
}
