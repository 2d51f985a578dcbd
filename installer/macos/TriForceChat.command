#!/bin/sh
# Starts TriForce Chat on a double click (the first time: see docs/setup.md); offers to fetch a Python.
# Arguments go to launcher.py.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit 1
root=$(CDPATH= cd -- "$here/../.." && pwd) || exit 1
. "$root/installer/get-python.sh"

find_python() {
    for minor in 12 13 11 10; do
        for python in "python3.$minor" "/opt/homebrew/bin/python3.$minor" "/usr/local/bin/python3.$minor" \
            "/Library/Frameworks/Python.framework/Versions/3.$minor/bin/python3"; do
            fits "$python" && return
        done
    done
    brought_python
}

if [ "$(uname -s) $(uname -m)" = 'Darwin x86_64' ]; then
    printf '%s\n' 'PyTorch is no longer made for Macs with an Intel processor; TriForce Chat needs an Apple one.' >&2
    status=1
elif find_python || { wants_python && fetch_python; }; then
    TRIFORCE_SHIM=1 "$python" "$root/launcher.py" "$@"
    status=$?
else
    printf '%s\n' 'TriForce Chat needs Python 3.10 to 3.13. Let it fetch one, or install Python 3.12 from' \
        'https://www.python.org/downloads/macos/ and start again.' >&2
    status=1
fi
if [ "$status" -ne 0 ] && [ "$#" -eq 0 ] && [ -t 0 ]; then
    printf 'Press Enter to close this window. '
    read -r _ || :
fi
# Terminal keeps the windows of programs that have ended: this one has nothing more to say.
if [ "$status" -eq 0 ] && [ "$#" -eq 0 ] && [ "${TERM_PROGRAM:-}" = Apple_Terminal ]; then
    osascript -e 'tell application "Terminal" to close (every window whose name contains "TriForceChat.command")' \
        >/dev/null 2>&1 &
fi
exit "$status"
