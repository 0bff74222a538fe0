// What was handed in: the files of a folder or an archive, and of archives in them.

#ifndef HVDLAB_CLASS_UPLOADS_H
#define HVDLAB_CLASS_UPLOADS_H

#include <stdbool.h>
#include <stddef.h>

#define MAX_SOURCE 1048576 // bytes of a file that is graded

typedef struct {
    char *path;     // from the folder that was read on, UTF-8, NFC: "week 3/s09.zip/steps/ring.c"
    long long time; // last modified, in seconds since 1970, as the file system or the archive says
    size_t size;    // at most MAX_SOURCE + 1
    char *bytes;    // of a file that is wanted; NULL: it was not read
} Upload;

// What could not be read, or is not there. `unread` is true where a file that counts may be in it.
typedef struct {
    char *path, *why;
    bool unread;
} Obstacle;

typedef struct {
    Upload *files;
    int count;
    Obstacle *obstacles;
    int obstacle_count;
} Uploads;

// Adds what is at `path`, a folder or an archive; nothing is unpacked, no link is followed. Paths
// begin with `name`, unless it is empty. `is_wanted` gets the last part of each. Files that systems
// leave behind (__MACOSX, .git, Thumbs.db) are left out.
void uploads_add(Uploads *uploads, const char *path, const char *name,
                 bool (*is_wanted)(const char *name));

// True for what is opened as an archive, by its name.
bool is_archive(const char *name);

// The last part of a path.
const char *last_part(const char *path);

#endif
