// Folders that hold so many bytes and so many names, and no more, whatever a program does: file
// systems in memory, mounted where only this program and what it starts see them. They are gone
// with it.

#ifndef HVDLAB_STEPS_STORAGE_H
#define HVDLAB_STEPS_STORAGE_H

#include <stdbool.h>

#define MAX_STORAGE (1ll << 29) // bytes
#define MAX_NAMES   20000       // of files and folders

// To be called once, before any thread: true where the system lets this program mount.
bool storage_prepare(void);
bool storage_prepared(void);

// Limits a folder that is there, with what will be below it. False where that is not possible.
bool storage_limit(const char *folder);

// Shows a folder, or what is below it, under another name too.
bool storage_bind(const char *folder, const char *as);

// How much of a limited folder is taken; its whole, where there is no room for another page or
// another name.
double storage_bytes(const char *folder);
bool storage_has_names(const char *folder); // that are left

// Unmounts what is mounted at a folder, and all of them: allocates nothing.
void storage_release(const char *folder);
void storage_release_all(void);

// Of a child, before it becomes its program: other mounts of its own.
bool storage_again(void);

#endif
