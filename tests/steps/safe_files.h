// Files that a submission may have made: no link is followed, and nothing is waited for.

#ifndef HVDLAB_STEPS_SAFE_FILES_H
#define HVDLAB_STEPS_SAFE_FILES_H

// The folder at a path below `parent`, an open one; -1: it is not there, or is none.
int safe_folder(int parent, const char *path);

// A regular file of at most `limit` bytes, open to be read; -1: it is none.
int safe_file(int folder, const char *name, long long limit);

#endif
