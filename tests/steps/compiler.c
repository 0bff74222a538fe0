// Judges whether there is a program: what the compiler and the linker say of a file, and what they
// don't, where it is no C at all.

#include "judge.h"
#include "diagnoses/compiler.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "file_kind.h"
#include "base/memory.h"
#include "base/format.h"
#include "base/process.h"

#define COMPILES "the program compiles"

// ---- Messages.

static bool is_error(const char *text)
{
    static const char *const words[] = {" error: ", "undefined reference", "multiple definition",
                                        "hidden symbol", "implicit declaration"};
    bool found = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        found = found || strstr(text, words[i]);
    // "collect2: error: ld returned 1 exit status" says nothing that the linker has not said.
    return found && !strstr(text, "ld returned");
}

// The first errors of the compiler or the linker, and warnings that explain them, each with the
// lines that show the place.
static char *first_errors(const char *messages)
{
    const int wanted = 9; // lines
    char *errors = NULL, *line;
    int lines = 0, follow = 0;
    for (const char *at = messages; lines < wanted && (line = next_part(&at, "\n")); free(line)) {
        bool of_linker = strstr(line, "undefined reference") || strstr(line, "multiple def");
        if (is_error(line))
            follow = of_linker ? 1 : 3;
        if (follow-- > 0 && !strstr(line, "ld returned"))
            text_add(&errors, "%s%.160s", lines++ ? "\n" : "", line);
    }
    return errors ? errors : format_text("%.1000s", messages);
}

// The name between the quotes that follow the words, if both stand in a line: 'f', ‘f’ or `f'.
// The caller frees it.
static char *name_after(const char *line, const char *words)
{
    const char *at = strstr(line, words);
    if (!at)
        return NULL;
    at += strlen(words);
    while (*at && *at != '_' && !isalnum((unsigned char)*at))
        at++;
    size_t length = 0;
    while (at[length] == '_' || isalnum((unsigned char)at[length]))
        length++;
    return length ? format_text("%.*s", (int)length, at) : NULL;
}

// The name behind `before` where the compiler or the linker says these words and, close behind, names
// the library's own declaration; NULL: it does not. The caller frees it.
static char *name_of_library(const char *messages, const char *words, const char *before)
{
    const char *line = strstr(messages, words);
    while (line && line > messages && line[-1] != '\n')
        line--;
    char *text = format_text("%.1500s", line ? line : "");
    bool library =
        strstr(text, "/hvdlab.o") || strstr(text, "/hvdlab-all.o") || strstr(text, "common/");
    char *name = library ? name_after(text, before) : NULL;
    free(text);
    return name;
}

// The name of a function of the library that the program has, too; NULL where that is not what is
// complained of.
static char *collision(const char *messages)
{
    static const char *const complaints[] = {"conflicting types for ", "static declaration of ",
                                             "redefinition of ", "multiple definition of "};
    char *name = NULL;
    for (size_t i = 0; i < sizeof complaints / sizeof *complaints && !name; i++)
        name = name_of_library(messages, complaints[i], complaints[i]);
    // error: ‘fit’ redeclared as different kind of symbol
    return name ? name : name_of_library(messages, " redeclared as different kind", "error: ");
}

// ---- The file.

// Its first bytes, as text. The caller frees it.
static char *beginning_of(const char *path)
{
    enum { SIZE = 1 << 16 };
    char *text = allocate(SIZE, 1);
    file_beginning(path, text, SIZE);
    return text;
}

static bool has_line_with(const char *text, const char *begin)
{
    bool has = false;
    for (char *line; !has && (line = next_part(&text, "\n")); free(line))
        has = strncmp(line + strspn(line, " \t"), begin, strlen(begin)) == 0;
    return has;
}

static bool has_any_line(const char *text, const char *const *begins)
{
    for (; *begins; begins++)
        if (has_line_with(text, *begins))
            return true;
    return false;
}

// What else than C the file seems to be, where it does not compile; NULL: nothing else.
static const Diagnosis *other_language(const char *text)
{
    static const char *const cpp[] = {
        "using namespace ",    "namespace ",        "template <",        "template<", "class ",
        "#include <iostream>", "#include <vector>", "#include <string>", "std::",     NULL};
    static const char *const python[] = {
        "import ",           "from ",       "def ", "#!/usr/bin/env python",
        "#!/usr/bin/python", "if __name__", NULL};
    static const char *const fortran[] = {"program ", "PROGRAM ", "use mpi", "implicit none", NULL};
    if (has_any_line(text, cpp))
        return &d_does_not_compile_c_plus_plus;
    if (has_any_line(text, python) && !(strchr(text, ';') && strstr(text, "#include")))
        return &d_does_not_compile_python;
    if (has_any_line(text, fortran) && !strstr(text, "#include"))
        return &d_does_not_compile_fortran;
    if (!strpbrk(text, ";{}"))
        return &d_does_not_compile_plain_text;
    return strpbrk(text, "{}") ? NULL : &d_does_not_compile_no_function;
}

// ---- The judgement.

// `own`: the text, where it is made of what the file shows; to be freed.
static Diagnosis likely_mistake_of(const char *file, int status, const char *messages, char **own)
{
    char *text = beginning_of(file), *name = collision(messages);
    char *defined = name_after(messages, "error: the program defines "); // compile-step says it
    const Diagnosis *mistake = &d_does_not_compile, *language = other_language(text),
                    *kind = file_kind(file);
    if (kind)
        mistake = kind;
    else if (status > 128)
        mistake = &d_does_not_compile_no_end;
    else if (text[strspn(text, " \t\r\n")] == '\0')
        mistake = &d_does_not_compile_empty;
    else if (strstr(messages, ": No such file or directory"))
        mistake = &d_does_not_compile_include;
    else if (strstr(messages, "error: a symbol is no name of C"))
        mistake = &d_does_not_compile_asm;
    else if (defined)
        *own = format_text("%s is a function of MPI or of cJSON, which the library calls, too; "
                           "give yours another name.",
                           defined);
    else if (name)
        *own = format_text("%s is a function of the library; give yours another name.", name);
    else if (language)
        mistake = language;
    else if (strstr(messages, "undefined reference to `main'"))
        mistake = &d_does_not_compile_no_main;
    else if (strstr(messages, "undefined reference"))
        mistake = &d_does_not_compile_undefined;
    free(text);
    free(name);
    free(defined);
    return (Diagnosis){mistake->name, *own ? *own : mistake->mistake, NULL};
}

// What the compiler says of bytes that are no text says nothing.
static char *evidence_of_compiler(const char *file, const char *messages)
{
    if (!file_kind(file))
        return first_errors(messages);
    char *bytes = first_bytes(file), *evidence = format_text("it begins with the bytes %s", bytes);
    free(bytes);
    return evidence;
}

bool judge_compiler(const char *file, int status, const char *messages, Report *report)
{
    messages = messages ? messages : "";
    const char *warning = strstr(messages, " warning: ");
    if (status != 0) {
        char *own = NULL;
        Diagnosis mistake = likely_mistake_of(file, status, messages, &own);
        report_failure(report, COMPILES, &mistake, evidence_of_compiler(file, messages));
        free(own);
        return false;
    }
    report_ok(report, COMPILES);
    if (warning)
        report_note(report, "the compiler warns:%.*s", (int)strcspn(warning + 9, "\n"),
                    warning + 9);
    return true;
}
