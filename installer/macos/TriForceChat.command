#!/bin/sh
# Starts TriForce Chat on a double click. The first time: right click, Open. Arguments go to launcher.py.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit 1
root=$(CDPATH= cd -- "$here/../.." && pwd) || exit 1

fits() {
    "$1" -c 'import sys; sys.exit(not ((3, 10) <= sys.version_info[:2] <= (3, 13)))' >/dev/null 2>&1
}

for minor in 12 13 11 10; do
    for python in "python3.$minor" "/opt/homebrew/bin/python3.$minor" "/usr/local/bin/python3.$minor" \
        "/Library/Frameworks/Python.framework/Versions/3.$minor/bin/python3"; do
        if fits "$python"; then
            TRIFORCE_SHIM=1 "$python" "$root/launcher.py" "$@"
            status=$?
            [ "$status" -eq 0 ] || [ "$#" -gt 0 ] || { printf 'Press Enter to close this window. '; read -r _ || :; }
            exit "$status"
        fi
    done
done

message='TriForce Chat needs Python 3.10 to 3.13. Install Python 3.12 from https://www.python.org/downloads/macos/ and start again.'
printf '%s\n' "$message" >&2
command -v osascript >/dev/null 2>&1 && osascript -e "display alert \"TriForce Chat\" message \"$message\"" >/dev/null 2>&1
exit 1
