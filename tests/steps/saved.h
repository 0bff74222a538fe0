// What a run leaves in the folder of its checkpoints. A file is known by its number on the disk,
// which it keeps whatever name it gets: so a renamed one is told from one that was written, or
// copied, under its last name; and by a hash of its bytes: one that was changed since is none that
// the library wrote. Links are not followed.

#ifndef HVDLAB_STEPS_SAVED_H
#define HVDLAB_STEPS_SAVED_H

#include "judge.h"

#define ENDING ".safetensors"

struct dirent;

// The path of --checkpoint-dir, which the caller frees; the folder, open; -1: it is not there.
char *checkpoint_folder(const Run *run);
int checkpoint_files(const Run *run);

// A regular file in it, open; -1: there is none.
int open_saved(const Run *run, const char *name);

// Whether a path, as the program gave it, is that of this name in this folder.
bool is_path_of(const Run *run, const char *path, const char *name);

// What follows the last slash.
const char *last_part(const char *path);

// "ckpt-3.safetensors", "best.safetensors".
bool is_checkpoints_name(const char *file);

// A file in the folder.
typedef struct {
    bool there;
    bool copied;        // from a file that is still there
    const cJSON *saved; // the event of the write that made it; NULL: none came to its end
} SavedFile;

SavedFile find_file(const Run *run, const char *name); // there: a regular file
SavedFile find_epoch(const Run *run, int epoch);

// All that are there and not hidden, as scandir() has them.
int list_files(const Run *run, struct dirent ***files);

// Evidence, which it takes over, and below it what is in the folder.
char *with_contents(const Run *run, char *evidence);

// Epochs whose end the root has come past: all that are done, except the one in which it was
// killed.
int epochs_saved(const Run *run);

// Judges a property that each run has beside the others. It is reported to hold where all runs came to
// their end: another one may have ended by just this.
bool judge_each(const Runs *runs, const char *property,
                Fault (*fault)(const Runs *runs, const Run *run), Report *report);

// A checkpoint's name under which there is no whole file at some moment (saved_names.c).
Fault saved_names_fault(const Run *run);

// Reports whether "best" is the best epoch (saved_best.c).
void judge_saved_best(const Runs *runs, Report *report);

#endif
