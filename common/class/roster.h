// Who is in a class, and by which names and numbers learning platforms know them.

#ifndef HVDLAB_CLASS_ROSTER_H
#define HVDLAB_CLASS_ROSTER_H

#include <stdbool.h>

typedef struct {
    char *id, *name, *email, *repository, *ref, *team; // "" where the roster does not say
    char *folder;                                      // safe_name() of the id
    const char *matched; // how an entry was found to be theirs, where that was a guess; or NULL
    long long deadline;  // of their own; 0: none
} Student;

// A text that stands for one student: a platform's number, an e-mail address.
typedef struct {
    char *text; // folded()
    int student;
} Alias;

typedef struct {
    Student *students;
    int count;
    bool open; // there is no roster: who hands in is in the class
    Alias *aliases;
    int alias_count;
} Class;

// A table with a column id, and any of name, email, repository, ref, team, deadline. NULL: no
// roster. Exits with an error message where it makes no sense.
Class class_read(const char *path);

// Who has handed in, where there is no roster. Returns the student's number.
int class_add(Class *class, const char *id, const char *name, const char *email);

// (NULL: none.) The book must have the column. Moodle's worksheet and Canvas's grade book say which
// number stands for which e-mail address, login or name of the roster.
void class_link(Class *class, const char *worksheet, const char *book, const char *column);

// The student whom a text stands for; -1: nobody, or several.
int class_find(const Class *class, const char *text);
// A whole name, in any order of its words; *all (NULL: not asked for) counts those who have it.
int class_find_name(const Class *class, const char *name, int *all);
int class_find_team(const Class *class, const char *name);
int class_find_within(const Class *class,
                      const char *text); // an id or a login that stands in it as a word

// Seconds since 1970 of "2026-10-01 23:59 Europe/Berlin": a zone's name, +02:00 or UTC, else this
// machine's zone; without a time the day's end. 0: it is none.
long long read_time(const char *text);

// "2026-10-01 21:59 UTC". The caller frees it.
char *time_text(long long time);

#endif
