@echo off
rem Starts TriForce Chat with a Python that fits (3.10 to 3.13, 64-bit); offers to fetch one.
rem Arguments go to launcher.py.
setlocal DisableDelayedExpansion
title TriForce Chat
set "TRIFORCE_SHIM=1"
set "LAUNCHER=%~dp0..\..\launcher.py"
set "FITS=import sys; sys.exit(not ((3, 10) <= sys.version_info[:2] <= (3, 13) and sys.maxsize > 2**32))"
set "PYTHON="
rem A question must not install a Python: py may do that where its install manager is.
set "PYTHON_MANAGER_AUTOMATIC_INSTALL=0"

for %%V in (3.10 3.11 3.13 3.12) do py -%%V -c "%FITS%" >nul 2>nul && set "PYTHON=py -%%V"
if defined PYTHON goto run
rem The shortcut to the Microsoft Store that Windows puts in place of Python fails this question too.
python -c "%FITS%" >nul 2>nul && set "PYTHON=python"
if defined PYTHON goto run
call "%~dp0get-python.bat"
if defined PYTHON goto run
pause
exit /b 1

:run
rem All on one line: an update may replace this file meanwhile, and cmd would go on somewhere in the new one.
%PYTHON% "%LAUNCHER%" %* & exit /b
