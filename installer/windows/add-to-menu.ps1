# Puts TriForce Chat into the Start menu and on the desktop, for this user. Run it again after moving the folder:
#   powershell -ExecutionPolicy Bypass -File add-to-menu.ps1
$ErrorActionPreference = 'Stop'
$start = Join-Path $PSScriptRoot 'TriForceChat.bat'
$root = (Resolve-Path (Join-Path $PSScriptRoot '..\..')).Path
$icon = Get-ChildItem -Path (Join-Path $root 'assets\icons') -Filter '*.ico' -ErrorAction SilentlyContinue | Select-Object -First 1
$shell = New-Object -ComObject WScript.Shell
foreach ($folder in @([Environment]::GetFolderPath('Programs'), [Environment]::GetFolderPath('Desktop'))) {
    $shortcut = $shell.CreateShortcut((Join-Path $folder 'TriForce Chat.lnk'))
    $shortcut.TargetPath = $start
    $shortcut.WorkingDirectory = $root
    if ($icon) { $shortcut.IconLocation = $icon.FullName }
    $shortcut.Save()
    Write-Output ('Added: ' + (Join-Path $folder 'TriForce Chat.lnk'))
}
