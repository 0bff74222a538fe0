// Encodings by iconv, Unicode by libunistring, hashes by OpenSSL's libcrypto.

#include "class/names.h"

#include <ctype.h>
#include <iconv.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <uninorm.h>
#include <unistr.h>
#include "base/error.h"
#include "base/format.h"
#include "base/memory.h"

// ---- Encodings.

void clean_text(char *text)
{
    for (uint8_t *at = (uint8_t *)text; *at;) {
        ucs4_t character;
        int length = u8_mbtouc(&character, at, strlen((char *)at));
        bool bad = character == 0xfffd && *at != 0xef;
        if (bad || (*at < ' ' && *at != '\n' && *at != '\t') || *at == 0x7f) {
            *at++ = '?';
            continue;
        }
        at += length;
    }
}

// NULL: the system does not know the encoding, or the bytes are not in it.
static char *converted(const char *bytes, size_t size, const char *encoding)
{
    iconv_t conversion = iconv_open("UTF-8", encoding);
    if (conversion == (iconv_t)-1) // NOLINT: as iconv_open(3) has it
        return NULL;
    size_t room = 4 * size + 1, left = room - 1;
    char *text = allocate(room, 1), *in = (char *)(uintptr_t)bytes, *out = text;
    bool done = iconv(conversion, &in, &size, &out, &left) != (size_t)-1;
    iconv_close(conversion);
    if (!done) {
        free(text);
        return NULL;
    }
    *out = '\0';
    return text;
}

static bool is_utf8(const char *bytes, size_t size)
{
    return u8_check((const uint8_t *)bytes, size) == NULL;
}

static char *as_it_is(const char *bytes, size_t size)
{
    char *text = allocate(size + 1, 1);
    memcpy(text, bytes, size);
    return text;
}

char *decode_text(const char *bytes, size_t size)
{
    char *text = NULL;
    if (size >= 2 && memcmp(bytes, "\xff\xfe", 2) == 0)
        text = converted(bytes + 2, size - 2, "UTF-16LE");
    else if (size >= 2 && memcmp(bytes, "\xfe\xff", 2) == 0)
        text = converted(bytes + 2, size - 2, "UTF-16BE");
    else if (size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        bytes += 3, size -= 3;
    if (!text && !is_utf8(bytes, size))
        text = converted(bytes, size, "CP1252");
    return text ? text : as_it_is(bytes, size);
}

char *decode_name(const char *bytes)
{
    size_t size = strlen(bytes);
    char *text = is_utf8(bytes, size) ? NULL : converted(bytes, size, "CP437");
    if (!text)
        text = as_it_is(bytes, size);
    clean_text(text);
    return text;
}

// ---- Names.

char *folded(const char *text)
{
    size_t length = 0, size = 0;
    uint8_t *folded =
        u8_casefold((const uint8_t *)text, strlen(text), "", UNINORM_NFC, NULL, &length);
    char *out = allocate(length + strlen(text) + 1, 1);
    for (size_t i = 0; folded && i < length; i++) {
        bool blank =
            folded[i] == ' ' || folded[i] == '\t' || folded[i] == '\n' || folded[i] == '\r';
        if (!blank)
            out[size++] = (char)folded[i];
        else if (size > 0 && out[size - 1] != ' ')
            out[size++] = ' ';
    }
    if (size > 0 && out[size - 1] == ' ')
        size--;
    out[size] = '\0';
    free(folded);
    return out;
}

bool same_name(const char *a, const char *b)
{
    char *x = folded(a), *y = folded(b);
    bool same = strcmp(x, y) == 0;
    free(x);
    free(y);
    return same;
}

char *safe_name(const char *text)
{
    char *name = format_text("%s", "");
    size_t length = strlen(text);
    for (size_t i = 0; i < length && i < 100; i++) {
        unsigned char c = (unsigned char)text[i];
        bool safe = (c < 0x80 && isalnum(c)) || strchr("_@+-", c) || (c == '.' && i > 0);
        text_add(&name, safe ? "%c" : "%%%02X", c);
    }
    if (length > 100) { // two long names stay two
        char *hash = sha256_of(text, length);
        text_add(&name, "-%.8s", hash);
        free(hash);
    }
    return name;
}

// ---- Hashes.

static char *hexadecimal(const unsigned char *bytes, size_t size)
{
    char *text = allocate(2 * size + 1, 1);
    for (size_t i = 0; i < size; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    return text;
}

char *sha256_of(const void *bytes, size_t size)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    CHECK(EVP_Digest(bytes, size, digest, &length, EVP_sha256(), NULL));
    return hexadecimal(digest, length);
}

Digest hmac_of(const char *secret, const char *text)
{
    unsigned char whole[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    CHECK(HMAC(EVP_sha256(), secret, (int)strlen(secret), (const unsigned char *)text, strlen(text),
               whole, &length));
    Digest digest;
    memcpy(digest.bytes, whole, sizeof digest.bytes);
    return digest;
}

// The end of a comment, a string or a character constant that begins at `at`; NULL: none does.
static const char *end_of_token(const char *at, const char *end)
{
    if (at + 1 < end && at[0] == '/' && at[1] == '/') {
        while (at < end && *at != '\n')
            at++;
        return at;
    }
    if (at + 1 < end && at[0] == '/' && at[1] == '*') {
        for (at += 2; at + 1 < end && !(at[0] == '*' && at[1] == '/');)
            at++;
        return at + 2 < end ? at + 2 : end;
    }
    if (*at != '"' && *at != '\'')
        return NULL;
    char quote = *at++;
    while (at < end && *at != quote && *at != '\n')
        at += *at == '\\' && at + 1 < end ? 2 : 1;
    return at < end ? at + 1 : end;
}

char *code_hash(const char *source, size_t size)
{
    char *code = allocate(size + 1, 1);
    size_t length = 0;
    for (const char *at = source, *end = source + size; at < end;) {
        const char *behind = end_of_token(at, end);
        if (!behind) {
            if (!isspace((unsigned char)*at))
                code[length++] = *at;
            at++;
            continue;
        }
        if (*at != '/') { // a string counts as it stands
            memcpy(code + length, at, (size_t)(behind - at));
            length += (size_t)(behind - at);
        }
        at = behind;
    }
    char *hash = sha256_of(code, length);
    free(code);
    return hash;
}
