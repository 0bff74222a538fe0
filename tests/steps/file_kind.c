// Kinds of files, as the program `file` tells them apart.

#include "file_kind.h"
#include "diagnoses/file_kind.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/format.h"

#define BEGINNING 4096 // bytes that are looked at

typedef struct {
    size_t at, length;
    const char *bytes;
    const Diagnosis *diagnosis;
} Kind;

#define WITH_LENGTH(bytes) sizeof(bytes) - 1, bytes

static const Kind kinds[] = {
    {0, WITH_LENGTH("\xff\xfe"), &d_does_not_compile_utf_16},
    {0, WITH_LENGTH("\xfe\xff"), &d_does_not_compile_utf_16},
    {0, WITH_LENGTH("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), &d_does_not_compile_word},
    {0, WITH_LENGTH("{\\rtf"), &d_does_not_compile_word},
    {30, WITH_LENGTH("[Content_Types].xml"), &d_does_not_compile_word},
    {30, WITH_LENGTH("mimetypeapplication/vnd.oasis"), &d_does_not_compile_word},
    {0, WITH_LENGTH("PK\x03\x04"), &d_does_not_compile_zip},
    {0, WITH_LENGTH("PK\x05\x06"), &d_does_not_compile_empty_zip},
    {0, WITH_LENGTH("\x1f\x8b"), &d_does_not_compile_gzip},
    {0, WITH_LENGTH("Rar!\x1a\x07"), &d_does_not_compile_archive},
    {0, WITH_LENGTH("7z\xbc\xaf\x27\x1c"), &d_does_not_compile_archive},
    {0, WITH_LENGTH("\3757zXZ"), &d_does_not_compile_archive},
    {0, WITH_LENGTH("BZh"), &d_does_not_compile_archive},
    {0, WITH_LENGTH("\x28\xb5\x2f\xfd"), &d_does_not_compile_archive},
    {257, WITH_LENGTH("ustar"), &d_does_not_compile_archive},
    {0, WITH_LENGTH("\177ELF"), &d_does_not_compile_compiled},
    {0, WITH_LENGTH("MZ"), &d_does_not_compile_compiled},
    {0, WITH_LENGTH("!<arch>\n"), &d_does_not_compile_compiled},
    {0, WITH_LENGTH("\xfe\xed\xfa\xce"), &d_does_not_compile_compiled},
    {0, WITH_LENGTH("\xfe\xed\xfa\xcf"), &d_does_not_compile_compiled},
    {0, WITH_LENGTH("\xce\xfa\xed\xfe"), &d_does_not_compile_compiled},
    {0, WITH_LENGTH("\xcf\xfa\xed\xfe"), &d_does_not_compile_compiled},
    {0, WITH_LENGTH("\xca\xfe\xba\xbe"), &d_does_not_compile_compiled},
    {0, WITH_LENGTH("%PDF-"), &d_does_not_compile_pdf},
    {0, WITH_LENGTH("\211PNG"), &d_does_not_compile_picture},
    {0, WITH_LENGTH("\xff\xd8\xff"), &d_does_not_compile_picture},
    {0, WITH_LENGTH("GIF8"), &d_does_not_compile_picture},
    {0, WITH_LENGTH("II*\0"), &d_does_not_compile_picture},
    {0, WITH_LENGTH("MM\0*"), &d_does_not_compile_picture},
    {8, WITH_LENGTH("WEBP"), &d_does_not_compile_picture},
    {4, WITH_LENGTH("ftyp"), &d_does_not_compile_picture},
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

const Diagnosis *file_kind(const char *path)
{
    char bytes[BEGINNING];
    size_t count = read_beginning(path, bytes);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (count >= kinds[i].at + kinds[i].length &&
            memcmp(bytes + kinds[i].at, kinds[i].bytes, kinds[i].length) == 0)
            return kinds[i].diagnosis;
    if (is_utf_16(bytes, count))
        return &d_does_not_compile_utf_16;
    if (begins_with_tag(bytes, count, "<!doctype html") || begins_with_tag(bytes, count, "<html"))
        return &d_does_not_compile_html;
    return memchr(bytes, '\0', count) ? &d_does_not_compile_no_text : NULL;
}

char *first_bytes(const char *path)
{
    char bytes[BEGINNING], *text = NULL;
    size_t count = read_beginning(path, bytes);
    for (size_t i = 0; i < count && i < 8; i++)
        text_add(&text, "%s%02X", i ? " " : "", (unsigned)(unsigned char)bytes[i]);
    return text;
}
