// Inside hvd: the files of checkpoints in their folder, by their names.
//
//     ckpt-3.safetensors                 a checkpoint's main file: it exists, and is whole
//     ckpt-3.rank-0.safetensors          a rank's part
//     ckpt-3.rank-0.safetensors.TOKEN    the same while it is not known yet whether the main file
//                                        that names this token will come to exist
//     ckpt-3.safetensors.TOKEN           the main file before it is renamed

#ifndef HVDLAB_CHECKPOINT_FOLDER_H
#define HVDLAB_CHECKPOINT_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

enum { TOKEN_LENGTH = 16 }; // hexadecimal digits

// Paths, which the caller frees. `token` NULL: without one.
char *main_path(const char *folder, const char *name, const char *token);
char *part_path(const char *folder, const char *name, int rank, const char *token);

// The name of the latest complete checkpoint; else "best"; else NULL. `missing`, if not NULL, gets
// the path of a file that a later, incomplete one lacks, or NULL. The caller frees both. Exits with
// an error message if a main file's header can't be read.
char *furthest_checkpoint(const char *folder, char **missing);

// The path of a rank's part of the checkpoint whose main file names this token, which the caller
// frees; NULL where it is not there.
char *find_part(const char *folder, const char *name, int rank, const char *token);

// Removes all checkpoints ckpt-... but the `keep` that are furthest and the one just saved.
void remove_older(const char *folder, int keep, const char *saved);

// Removes this checkpoint's files of saves that did not finish, and those of ranks from `ranks` on.
void remove_unfinished(const char *folder, const char *name, const char *token, int ranks);

// Removes all files of saves that did not finish. `names_token` tells whether a main file names a
// token.
void remove_orphans(const char *folder, bool (*names_token)(const char *path, const char *token));

// Waits until the folder's names are on the disk; 0 or the system's error number.
int sync_names(const char *folder);

#endif
