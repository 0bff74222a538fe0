// Files and folders.

#ifndef HVDLAB_FILES_H
#define HVDLAB_FILES_H

#include <stdbool.h>
#include <stddef.h>

// Makes the folder and those above it that are not there; where one can't be made, the program
// exits with an error message.
void make_folders(const char *path);
int try_folders(const char *path); // the same, but returns errno where it cannot; 0: done

// All bytes of a file, with a zero behind them, and their number; the caller frees them. Where it
// can't be read, the program exits with an error message.
char *file_bytes(const char *path, size_t *size);

// Writes all bytes, by as many calls as it takes. False if it can't: errno says why.
bool write_whole(int file, const void *bytes, size_t size);

// A hash of an open file's bytes from where it stands to its end, as 16 hexadecimal digits: equal
// bytes, equal hashes (FNV-1a). Empty where it can't be read.
typedef struct {
    char digits[17];
} FileHash;
FileHash file_hash(int file);

// Makes the file, or puts another in its place by a rename, so that a reader sees one of the two as
// a whole.
void file_replace(const char *path, const char *bytes, size_t size);

// fsync; 0, or an error number. No error where the file system has no such call for this kind of
// file, as VirtualBox's and some of FUSE's have none for folders: they write when they can.
int sync_file(int file);

// Called before a file is written that a user has named: exits with an error message if a file is
// there that the kit did not write. A file of the kit has `text` in its first 64 KiB; an empty one,
// and what is no regular file (a pipe), may be written.
void need_own_file(const char *path, const char *text);

#endif
