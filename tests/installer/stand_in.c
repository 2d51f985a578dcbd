/* A program of Windows that asks the test what it should do: it sends its own name, its folder, its words and its
   environment to 127.0.0.1:STAND_IN_PORT, prints what comes back, and ends with the status that came first.
   Copied as py.exe, curl.exe, uv.exe and so on. Built by wine.py with MinGW. */
#include <winsock2.h>
#include <windows.h>
#include <stdio.h>
#include <stdlib.h>

static SOCKET test;

static void send_text(const wchar_t *text) {
    static char packed[1 << 17];
    int size = WideCharToMultiByte(CP_UTF8, 0, text, -1, packed, sizeof packed, NULL, NULL);
    send(test, packed, size, 0);
}

int wmain(int count, wchar_t **words) {
    static wchar_t text[1 << 15];
    char said[4096], status = 0;
    struct sockaddr_in place = {AF_INET};
    const char *port = getenv("STAND_IN_PORT");
    WSADATA data;

    WSAStartup(MAKEWORD(2, 2), &data);
    place.sin_port = htons((unsigned short)atoi(port ? port : "0"));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    test = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(test, (struct sockaddr *)&place, sizeof place)) return 99;

    GetModuleFileNameW(NULL, text, 1 << 15);
    send_text(text);
    GetCurrentDirectoryW(1 << 15, text);
    send_text(text);
    swprintf(text, 1 << 15, L"%d", count - 1);
    send_text(text);
    for (int n = 1; n < count; n++) send_text(words[n]);
    for (wchar_t *line = GetEnvironmentStringsW(); *line; line += wcslen(line) + 1) send_text(line);
    send(test, "", 1, 0);

    if (recv(test, &status, 1, 0) != 1) return 98;
    for (int size; (size = recv(test, said, sizeof said, 0)) > 0;) fwrite(said, 1, size, stdout);
    return (unsigned char)status;
}
