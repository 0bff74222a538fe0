// Text from elsewhere: its encoding, names that compare equal, names that are safe as a file's, and
// hashes.

#ifndef HVDLAB_CLASS_NAMES_H
#define HVDLAB_CLASS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Puts '?' in place of bytes that are no UTF-8, and of control characters but tab and line break.
void clean_text(char *text);

// The text of a file of a spreadsheet, as UTF-8 without a byte order mark: UTF-16 by its mark, else
// UTF-8, else Windows-1252. The caller frees it.
char *decode_text(const char *bytes, size_t size);

// A file name of an archive without the UTF-8 flag: UTF-8 if it is that, else code page 437
// (APPNOTE.TXT, D.1). The caller frees it.
char *decode_name(const char *bytes);

// As one writes it in another way: composed (NFC), small letters, single blanks, none at the ends.
// The caller frees it.
char *folded(const char *text);

// The same name, as folded() sees it.
bool same_name(const char *a, const char *b);

// A name that is safe as a file's: other bytes than letters, digits and ._@+- become %XX. The
// caller frees it.
char *safe_name(const char *text);

// SHA-256 in 64 hexadecimal digits. The caller frees it.
char *sha256_of(const void *bytes, size_t size);

// HMAC-SHA256 of a text, the first 16 bytes.
typedef struct {
    unsigned char bytes[16];
} Digest;
Digest hmac_of(const char *secret, const char *text);

// A source without white space and comments, hashed: equal for programs that differ in nothing
// else. The caller frees it.
char *code_hash(const char *source, size_t size);

#endif
