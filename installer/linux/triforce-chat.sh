#!/bin/sh
# Starts TriForce Chat with a Python that fits (3.10 to 3.13); offers to fetch one. Arguments go to
# launcher.py.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit 1
root=$(CDPATH= cd -- "$here/../.." && pwd) || exit 1
. "$root/installer/get-python.sh"

tell() {
    printf '%s\n' "$1" >&2
    [ -t 2 ] && return
    if command -v zenity >/dev/null 2>&1; then zenity --error --title='TriForce Chat' --text="$1" 2>/dev/null
    elif command -v kdialog >/dev/null 2>&1; then kdialog --title 'TriForce Chat' --error "$1" 2>/dev/null
    elif command -v notify-send >/dev/null 2>&1; then notify-send 'TriForce Chat' "$1"
    fi
}

find_python() {
    for python in python3.12 python3.13 python3.11 python3.10 python3; do
        fits "$python" && return
    done
    brought_python
}

# Whether the environment is there: beside the program, or elsewhere (installer/places.py).
is_set_up() {
    apart=$(printf %s "$root" | sha256sum | cut -c1-8)
    [ -d "$root/.venv" ] || [ -d "${XDG_DATA_HOME:-$HOME/.local/share}/triforce-chat/$apart" ]
}

# From the menu there is no terminal: one is opened for the setup, which takes minutes, and for its questions.
if [ "$#" -eq 0 ] && ! [ -t 0 ] && [ -z "${TRIFORCE_SETUP_WINDOW:-}" ] && ! is_set_up; then
    export TRIFORCE_SETUP_WINDOW=1
    for terminal in x-terminal-emulator gnome-terminal konsole xfce4-terminal xterm; do
        option=-e
        [ "$terminal" = gnome-terminal ] && option=--
        command -v "$terminal" >/dev/null 2>&1 && break
        terminal=
    done
    [ -n "$terminal" ] && exec "$terminal" "$option" "$here/triforce-chat.sh"
fi

if find_python || { wants_python && fetch_python; }; then
    TRIFORCE_SHIM=1 "$python" "$root/launcher.py" "$@"
    status=$?
else
    tell 'TriForce Chat needs Python 3.10 to 3.13. Start it in a terminal and let it fetch one, or install it:
  Debian, Ubuntu:  sudo apt install python3 python3-venv
  Fedora:          sudo dnf install python3.12
  Arch:            sudo pacman -S python'
    status=1
fi
if [ "$status" -ne 0 ] && [ "$#" -eq 0 ] && [ -t 0 ]; then
    printf 'Press Enter to close this window. ' >&2
    read -r _ || :
fi
exit "$status"
