# Read by the starters of Linux and macOS, with $root set. Finds a Python that fits, or offers to fetch uv,
# which brings one. What is fetched lies in one folder, $brought: beside launcher.py, or in the user's own
# where that cannot be written to.

brought=$root/.python
[ -w "$root" ] || brought=${XDG_DATA_HOME:-"$HOME/.local/share"}/triforce-chat/python

fits() {
    "$1" -c 'import sys; sys.exit(not ((3, 10) <= sys.version_info[:2] <= (3, 13)))' >/dev/null 2>&1
}

# Sets $python to one that was fetched earlier.
brought_python() {
    for python in "$brought"/cpython-3.1*/bin/python3; do
        fits "$python" && return
    done
    return 1
}

# The person's yes: on the terminal, in a window, or given beforehand.
wants_python() {
    question="TriForce Chat needs Python 3.10 to 3.13, and none was found. Fetch one for TriForce Chat alone?
uv (18 MB) is fetched, and the Python that it brings, into $brought"
    case ${TRIFORCE_FETCH_PYTHON:-} in yes) return 0 ;; no) return 1 ;; esac
    if [ -t 0 ]; then
        printf '%s\n[y/N] ' "$question" >&2
        read -r answer
        case $answer in [yY]*) return 0 ;; esac
    elif [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ]; then
        if command -v zenity >/dev/null; then
            zenity --question --title='TriForce Chat' --text="$question" 2>/dev/null && return
        elif command -v kdialog >/dev/null; then
            kdialog --title 'TriForce Chat' --yesno "$question" 2>/dev/null && return
        fi
    fi
    return 1
}

# Fetches uv, checks it, and lets it bring a Python. Sets $python. Two that run at once work in folders
# of their own.
fetch_python() {
    line=$(grep "^$(uname -s)-$(uname -m) " "$root/installer/uv.txt") || return 1
    read -r _ address digest begin <<ROW
$line
ROW
    work=$brought/uv-$$
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    mkdir -p "$work" || return 1
    printf 'Fetching uv ...\n' >&2
    download "$address" "$work/uv.whl" && has_digest "$work/uv.whl" "$digest" && unpack || return 1
    printf 'Fetching Python ...\n' >&2
    bring || return 1
    rm -rf "$work"
    trap - INT TERM HUP
    brought_python
}

download() {
    if command -v curl >/dev/null; then curl --fail --silent --show-error --location --retry 2 --output "$2" "$1"
    elif command -v wget >/dev/null; then wget --quiet --output-document="$2" "$1"
    else printf 'Neither curl nor wget is installed.\n' >&2; return 1
    fi
}

has_digest() {
    if command -v sha256sum >/dev/null; then found=$(sha256sum <"$1"); else found=$(shasum -a 256 <"$1"); fi
    [ "${found%% *}" = "$2" ] && return
    printf 'What came from %s is not the file that was expected; it is not used.\n' "$address" >&2
    return 1
}

unpack() {
    if [ -n "$begin" ]; then
        tail -c "+$begin" "$work/uv.whl" | gzip -dc >"$work/uv" 2>/dev/null  # its warning: other files follow
    else
        tar -xf "$work/uv.whl" -C "$work" && mv "$work"/uv-*.data/scripts/uv "$work/uv"
    fi
    chmod +x "$work/uv" && "$work/uv" --version >/dev/null
}

# uv writes nowhere else, reads no settings of its user's, and changes neither the path nor the shell.
bring() {
    env UV_NO_CONFIG=1 UV_COMPILE_BYTECODE=0 UV_CACHE_DIR="$work/cache" UV_PYTHON_CACHE_DIR="$work/cache" \
        UV_TOOL_DIR="$work/tools" \
        UV_TOOL_BIN_DIR="$work/bin" UV_PYTHON_BIN_DIR="$work/bin" UV_CREDENTIALS_DIR="$work/credentials" \
        UV_PYTHON_INSTALL_DIR="$brought" "$work/uv" python install --no-bin --managed-python '>=3.10,<3.13'
}
