// The folder in which a check works: its own, so that several checks of an exercise may run at
// once in one clone. It lies below BUILD/check, and is gone when the check has ended.

#ifndef HVDLAB_STEPS_WORKPLACE_H
#define HVDLAB_STEPS_WORKPLACE_H

#include <stdbool.h>

// Makes the folder; the caller frees its absolute path. Removes folders of checks that were killed.
// With `strict` other users may enter it, but not list it. Exits where it can't be made.
char *workplace_make(const char *build, bool strict);

// While it is held, no other check moves its results into BUILD/check.
typedef struct {
    int file;
} WorkplaceLock;
WorkplaceLock workplace_lock(const char *build);
void workplace_unlock(WorkplaceLock lock);

// Takes the names of the folder and of the kit out of a text (NULL: none): a message names the file
// as its author knows it, on any machine.
void workplace_hide(char *text);

// Removes the folder, if there is one. Also for signals and errors: allocates nothing.
void workplace_remove(void);

// Removes a file, or a folder with all that is in it, as far as possible.
void remove_tree(const char *path);

#endif
