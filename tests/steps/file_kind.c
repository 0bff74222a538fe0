// Kinds of files, as the program `file` tells them apart.

#include "file_kind.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/format.h"

#define BEGINNING 4096 // bytes that are looked at

typedef struct {
    size_t at, length;
    const char *bytes;
    const char *words;
} Kind;

#define WITH_LENGTH(bytes) sizeof(bytes) - 1, bytes

static const char word[] = "the file is a document of a word processor, not a C program. Save the "
                           "program as plain text, or copy it into an editor for programs.";
static const char picture[] = "the file is a picture. Hand in the program's text.";
static const char archive[] = "the file is an archive (tar, rar, 7z, xz, bzip2 or zstd). Hand in "
                              "the C file that is in it.";
static const char compiled[] = "the file is a compiled program. Hand in its source, a C file.";
static const char utf_16[] = "the file is UTF-16: save it as UTF-8. An editor has this as "
                             "\"encoding\", in the status line or where it saves a file.";

static const Kind kinds[] = {
    {0, WITH_LENGTH("\xff\xfe"), utf_16},
    {0, WITH_LENGTH("\xfe\xff"), utf_16},
    {0, WITH_LENGTH("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), word},
    {0, WITH_LENGTH("{\\rtf"), word},
    {30, WITH_LENGTH("[Content_Types].xml"), word},
    {30, WITH_LENGTH("mimetypeapplication/vnd.oasis"), word},
    {0, WITH_LENGTH("PK\x03\x04"), "the file is a zip archive. Hand in the C file that is in it."},
    {0, WITH_LENGTH("PK\x05\x06"), "the file is a zip archive, and nothing is in it."},
    {0, WITH_LENGTH("\x1f\x8b"),
     "the file is compressed by gzip. Hand in the C file that is in it."},
    {0, WITH_LENGTH("Rar!\x1a\x07"), archive},
    {0, WITH_LENGTH("7z\xbc\xaf\x27\x1c"), archive},
    {0, WITH_LENGTH("\3757zXZ"), archive},
    {0, WITH_LENGTH("BZh"), archive},
    {0, WITH_LENGTH("\x28\xb5\x2f\xfd"), archive},
    {257, WITH_LENGTH("ustar"), archive},
    {0, WITH_LENGTH("\177ELF"), compiled},
    {0, WITH_LENGTH("MZ"), compiled},
    {0, WITH_LENGTH("!<arch>\n"), compiled},
    {0, WITH_LENGTH("\xfe\xed\xfa\xce"), compiled},
    {0, WITH_LENGTH("\xfe\xed\xfa\xcf"), compiled},
    {0, WITH_LENGTH("\xce\xfa\xed\xfe"), compiled},
    {0, WITH_LENGTH("\xcf\xfa\xed\xfe"), compiled},
    {0, WITH_LENGTH("\xca\xfe\xba\xbe"), compiled},
    {0, WITH_LENGTH("%PDF-"), "the file is a PDF. Hand in the program's text, a C file."},
    {0, WITH_LENGTH("\211PNG"), picture},
    {0, WITH_LENGTH("\xff\xd8\xff"), picture},
    {0, WITH_LENGTH("GIF8"), picture},
    {0, WITH_LENGTH("II*\0"), picture},
    {0, WITH_LENGTH("MM\0*"), picture},
    {8, WITH_LENGTH("WEBP"), picture},
    {4, WITH_LENGTH("ftyp"), picture},
};

static size_t read_beginning(const char *path, char bytes[BEGINNING])
{
    FILE *file = fopen(path, "re");
    size_t count = file ? fread(bytes, 1, BEGINNING, file) : 0;
    if (file)
        fclose(file);
    return count;
}

// Without a byte order mark: of English text and C every other byte is 0.
static bool is_utf_16(const char *bytes, size_t count)
{
    size_t zeros[2] = {0, 0};
    for (size_t i = 0; i < count; i++)
        zeros[i % 2] += bytes[i] == '\0';
    size_t most = zeros[0] > zeros[1] ? zeros[0] : zeros[1], least = zeros[0] + zeros[1] - most;
    return count >= 4 && most > count * 2 / 5 && least < count / 50 + 1;
}

static bool begins_with_tag(const char *bytes, size_t count, const char *tag)
{
    size_t at = count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, length = strlen(tag);
    while (at < count && isspace((unsigned char)bytes[at]))
        at++;
    return count - at >= length && strncasecmp(bytes + at, tag, length) == 0;
}

const char *file_kind(const char *path)
{
    char bytes[BEGINNING];
    size_t count = read_beginning(path, bytes);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (count >= kinds[i].at + kinds[i].length &&
            memcmp(bytes + kinds[i].at, kinds[i].bytes, kinds[i].length) == 0)
            return kinds[i].words;
    if (is_utf_16(bytes, count))
        return utf_16;
    if (begins_with_tag(bytes, count, "<!doctype html") || begins_with_tag(bytes, count, "<html"))
        return "the file is a page of the web (HTML), perhaps the one that shows the program, or "
               "one that asks to log in. Download the C file itself.";
    return memchr(bytes, '\0', count) ? "the file is no text, though its name says so." : NULL;
}

char *first_bytes(const char *path)
{
    char bytes[BEGINNING], *text = NULL;
    size_t count = read_beginning(path, bytes);
    for (size_t i = 0; i < count && i < 8; i++)
        text_add(&text, "%s%02X", i ? " " : "", (unsigned)(unsigned char)bytes[i]);
    return text;
}
