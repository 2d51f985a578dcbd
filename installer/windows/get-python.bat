@echo off
rem Called by TriForceChat.bat with FITS set. Sets PYTHON to one that was fetched earlier, or offers to fetch
rem uv, which brings one. All of it lies in BROUGHT; registry, path and PowerShell's policy stay as they are.
set "BROUGHT=%LOCALAPPDATA%\TriForce\python"
call :find
if defined PYTHON exit /b 0

echo TriForce Chat needs Python 3.10 to 3.13, 64-bit, and none was found.
echo It can fetch one for itself alone: uv (16 MB) and the Python that it brings, into
echo   "%BROUGHT%"
if "%TRIFORCE_FETCH_PYTHON%"=="no" goto by_hand
if "%TRIFORCE_FETCH_PYTHON%"=="yes" goto fetch
%SystemRoot%\System32\choice.exe /c YN /n /m "Fetch it? [Y/N] "
if not "%ERRORLEVEL%"=="1" goto by_hand

:fetch
rem A folder of its own for each start; its programs are given short names in it, whatever letters its own has.
set "WORK=%BROUGHT%\uv-%RANDOM%"
if exist "%WORK%" echo Another start is fetching it.
if exist "%WORK%" goto by_hand
for /f "usebackq eol=# tokens=1-3" %%A in ("%~dp0..\uv.txt") do call :row %%A %%B %%C
mkdir "%WORK%" || goto by_hand
pushd "%WORK%" || goto failed
echo Fetching uv ...
set "CURL=%SystemRoot%\System32\curl.exe --fail --silent --show-error --location --retry 2"
%CURL% --output uv.zip "%ADDRESS%" || goto failed
set "FOUND="
set "HASH=%SystemRoot%\System32\certutil.exe -hashfile uv.zip SHA256"
for /f "skip=1 delims=" %%H in ('%HASH%') do call :first "%%H"
if not defined FOUND goto failed
rem Older Windows puts spaces between the bytes.
set "FOUND=%FOUND: =%"
if /i not "%FOUND%"=="%WANTED%" echo What came is not the file that was expected; it is not used.
if /i not "%FOUND%"=="%WANTED%" goto failed
%SystemRoot%\System32\tar.exe -xf uv.zip || goto failed
for /d %%D in (uv-*.data) do set "UV=%%D\scripts\uv.exe"
echo Fetching Python ...
set "UV_NO_CONFIG=1"
set "UV_COMPILE_BYTECODE=0"
set "UV_CACHE_DIR=%WORK%\cache"
set "UV_PYTHON_CACHE_DIR=%WORK%\cache"
set "UV_TOOL_DIR=%WORK%\tools"
set "UV_TOOL_BIN_DIR=%WORK%\bin"
set "UV_PYTHON_BIN_DIR=%WORK%\bin"
set "UV_CREDENTIALS_DIR=%WORK%\credentials"
set "UV_PYTHON_INSTALL_DIR=%BROUGHT%"
call :bring || call :bring_again || goto failed
popd
rmdir /s /q "%WORK%"
call :find
if defined PYTHON exit /b 0
goto by_hand

:failed
popd
if exist "%WORK%" rmdir /s /q "%WORK%"
echo That did not work. See that this computer is online and has room on its disk, and start again.

:by_hand
echo.
echo Or install Python 3.12 from https://www.python.org/downloads/windows/ and start TriForce Chat again.
exit /b 1

:row
if not "%~1"=="Windows" exit /b 0
set "ADDRESS=%~2"
set "WANTED=%~3"
exit /b 0

:first
if not defined FOUND set "FOUND=%~1"
exit /b 0

:bring
"%UV%" python install --no-bin --no-registry --managed-python ">=3.10,<3.13" || exit /b 1
exit /b 0

:bring_again
rem A virus scanner may hold what uv has just unpacked ("Access is denied"): once more when it has looked.
ping -n 11 127.0.0.1 >nul
call :bring || exit /b 1
exit /b 0

:find
if not exist "%BROUGHT%" exit /b 0
pushd "%BROUGHT%" || exit /b 0
for /d %%D in (cpython-3.1*) do call :try "%BROUGHT%\%%D\python.exe"
popd
exit /b 0

:try
%* -c "%FITS%" >nul 2>nul || exit /b 1
set PYTHON=%*
exit /b 0
