// Files and folders.

#ifndef HVDLAB_FILES_H
#define HVDLAB_FILES_H

// Makes the folder and those above it that are not there; where one can't be made, the program
// exits with an error message.
void make_folders(const char *path);

#endif
