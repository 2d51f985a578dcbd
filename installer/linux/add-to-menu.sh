#!/bin/sh
# Adds TriForce Chat to the desktop's application menu, and to "Open with" of books, for this user.
# Run it again after moving the folder.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
menu=${XDG_DATA_HOME:-"$HOME/.local/share"}/applications
icon=$(ls "$root"/assets/icons/*.svg "$root"/assets/icons/*.png 2>/dev/null | head -n 1 || :)

# In a desktop entry, Exec wants the path in double quotes with \ " ` $ escaped, each \ doubled once more,
# and % doubled.
quoted=$(printf '%s' "$here/triforce-chat.sh" | sed -e 's/[\\"`$]/\\&/g' -e 's/\\/\\\\/g' -e 's/%/%%/g')

types='application/epub+zip;application/pdf;application/x-fictionbook+xml;text/plain;text/markdown;text/html;application/rtf;'
types="${types}application/vnd.openxmlformats-officedocument.wordprocessingml.document;application/vnd.oasis.opendocument.text;"

mkdir -p "$menu"
cat > "$menu/triforce-chat.desktop" <<ENTRY
[Desktop Entry]
Type=Application
Version=1.0
Name=TriForce Chat
Comment=Read whole books with a local model
Exec="$quoted" %f
MimeType=$types
Icon=${icon:-accessories-dictionary}
Terminal=false
Categories=Office;Education;
StartupNotify=true
ENTRY
chmod +x "$here/triforce-chat.sh"
# where this is missing, the desktop finds the types at the next login
if command -v update-desktop-database >/dev/null 2>&1; then update-desktop-database "$menu" >/dev/null 2>&1 || :; fi
printf 'TriForce Chat is in the application menu (%s).\n' "$menu/triforce-chat.desktop"
