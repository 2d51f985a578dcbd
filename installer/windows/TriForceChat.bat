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

for %%V in (3.10 3.11 3.13 3.12) do call :try py -%%V
if defined PYTHON goto run
rem The shortcut to the Microsoft Store that Windows puts in place of Python fails this question too.
call :try python
if defined PYTHON goto run
call "%~dp0get-python.bat"
if defined PYTHON goto run
pause
exit /b 1

:try
rem By call, for Python's name may be a batch file's (pyenv), which would not come back.
call %* -c "%FITS%" >nul 2>nul || exit /b 1
set PYTHON=%*
exit /b 0

:run
rem All on one line: an update may replace this file meanwhile, and cmd would go on somewhere in the new one.
%PYTHON% "%LAUNCHER%" %* & exit /b
