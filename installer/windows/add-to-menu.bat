@echo off
rem Puts TriForce Chat into the Start menu and on the desktop, for this user. Run it again after moving it.
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
echo TriForce Chat is in the Start menu and on the desktop.
pause
exit /b 0

:failed
echo It could not be put there. Make a shortcut to this file yourself:
echo   "%TARGET%"
pause
exit /b 1
