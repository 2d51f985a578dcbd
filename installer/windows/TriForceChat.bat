@echo off
rem Starts TriForce Chat with a Python that fits (3.10 to 3.13, 64-bit), or says how to get one. Arguments go to launcher.py.
setlocal DisableDelayedExpansion
title TriForce Chat
set "TRIFORCE_SHIM=1"
set "LAUNCHER=%~dp0..\..\launcher.py"
set "QUESTION=import sys; sys.exit(not ((3, 10) <= sys.version_info[:2] <= (3, 13) and sys.maxsize > 2**32))"

for %%V in (3.12 3.13 3.11 3.10) do (
    py -%%V -c "%QUESTION%" >nul 2>nul && (set "PYTHON=py -%%V" & goto run)
)
rem The shortcut to the Microsoft Store that Windows puts in place of Python fails this question too.
python -c "%QUESTION%" >nul 2>nul && (set "PYTHON=python" & goto run)

echo TriForce Chat needs Python 3.10 to 3.13, 64-bit.
echo.
echo   Download Python 3.12 from https://www.python.org/downloads/windows/
echo   or type:  winget install Python.Python.3.12
echo.
echo Then start TriForce Chat again.
pause
exit /b 1

:run
%PYTHON% "%LAUNCHER%" %*
set "STATUS=%ERRORLEVEL%"
if not "%STATUS%"=="0" if "%~1"=="" pause
exit /b %STATUS%
