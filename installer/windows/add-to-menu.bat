@echo off
rem Puts TriForce Chat into the Start menu and on the desktop, and under "Open with" for books, for this user.
rem Run it again after moving it.
rem The line for PowerShell is no script file: its policy for those is not asked, and is not changed.
setlocal DisableDelayedExpansion
set "TARGET=%~dp0TriForceChat.bat"
for %%R in ("%~dp0..\..") do set "PROGRAM=%%~fR"
set "ICON=%PROGRAM%\assets\icons\triforce-chat.ico"
set "MAKE=$shell = New-Object -ComObject WScript.Shell; $folder = [Environment]::GetFolderPath($place)"
set "MAKE=%MAKE%; $link = $shell.CreateShortcut((Join-Path $folder 'TriForce Chat.lnk'))"
set "MAKE=%MAKE%; $link.TargetPath = $env:TARGET; $link.WorkingDirectory = $env:PROGRAM"
set "MAKE=%MAKE%; $link.IconLocation = $env:ICON; $link.Save()"
set "STOP=$ErrorActionPreference = 'Stop'"
powershell -NoProfile -Command "%STOP%; foreach ($place in 'Programs', 'Desktop') { %MAKE% }"
if not "%ERRORLEVEL%"=="0" goto failed

rem The same names stand in installer\open_with.py, which takes them out again.
set "CLASSES=HKCU:\Software\Classes"
set "TYPES=epub pdf fb2 txt md html docx odt rtf"
set "OPEN=$q = [char]34; $book = $env:CLASSES + '\TriForceChat.Book'"
set "OPEN=%OPEN%; $run = $q + $env:TARGET + $q + ' ' + $q + '%%1' + $q"
set "OPEN=%OPEN%; $null = New-Item -Force $book -Value 'TriForce Chat'"
set "OPEN=%OPEN%; $null = New-Item -Force ($book + '\DefaultIcon') -Value $env:ICON"
set "OPEN=%OPEN%; $null = New-Item -Force ($book + '\shell\open\command') -Value $run"
set "LIST=$list = $env:CLASSES + '\.' + $type + '\OpenWithProgids'"
set "LIST=%LIST%; if (-not (Test-Path $list)) { $null = New-Item -Force $list }"
set "LIST=%LIST%; $null = New-ItemProperty -Force $list -Name 'TriForceChat.Book' -Value ''"
powershell -NoProfile -Command "%STOP%; %OPEN%; foreach ($type in $env:TYPES.Split(' ')) { %LIST% }"
if not "%ERRORLEVEL%"=="0" goto failed
echo TriForce Chat is in the Start menu, on the desktop and under "Open with".
pause
exit /b 0

:failed
echo It could not be put there. Make a shortcut to this file yourself:
echo   "%TARGET%"
pause
exit /b 1
