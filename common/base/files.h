// Files and folders.

#ifndef HVDLAB_FILES_H
#define HVDLAB_FILES_H

// Makes the folder and those above it that are not there; where one can't be made, the program
// exits with an error message.
void make_folders(const char *path);

// Called before a file is written that a user has named: exits with an error message if a file is
// there that the kit did not write. A file of the kit has `text` in its first 64 KiB; an empty one,
// and what is no regular file (a pipe), may be written.
void need_own_file(const char *path, const char *text);

#endif
