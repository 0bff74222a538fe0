// page: a picture of a run, from its traces (HVDLAB_TRACE): one HTML file that needs no network.
//
//     page TRACE TO.html           of the newest run in the folder, as far as it is
//     page --live TRACE TO.html    while it goes on: TO.html once, and each second TO.html.js, the
//                                  data, which the page loads again; ends with the run. Where the
//                                  newest run has ended, it waits for the next one
//
// What is drawn, and how, is in page.html. This program makes its data, by page/process.h.

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/json.h"
#include "page/process.h"
#include "page/runs.h"

#define TEMPLATE "common/tools/page.html"
#define MARK     "/*DATA*/"

static const char usage[] = "usage: page [--live] TRACE TO.html";

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

typedef struct {
    cJSON *data;
    const char *job; // "": there is no run
    int ranks;       // that have begun
    bool over;       // all of them have ended, or are gone
} Picture;

// `live`: the file beside the page that has its data. Of the job `old` nothing is shown.
static Picture picture_of(const Folder *folder, const char *path, const char *live, const char *old)
{
    Picture picture = {.data = cJSON_CreateObject(), .job = "", .over = true};
    cJSON *data = picture.data, *ranks = cJSON_AddArrayToObject(data, "ranks");
    double begin = (double)INFINITY, end = 0;
    bool cut = false;
    const char *program = NULL;
    const RunFile *newest = folder->newest;
    static Process process;
    if (newest && strcmp(newest->job, old ? old : "-") == 0)
        newest = NULL;
    for (int i = 0; newest && i < folder->count; i++) {
        const RunFile *file = &folder->files[i];
        if (!is_of(file, newest))
            continue;
        picture.over = process_read(&process, path, file, live, ranks) && picture.over;
        picture.ranks++;
        program = program ? program : file->program;
        begin = fmin(begin, process.whole.begin);
        end = fmax(end, process.whole.last);
        cut = cut || process.whole.cut;
    }
    picture.over = picture.over && picture.ranks > 0;
    picture.job = newest ? newest->job : "";
    if (live && picture.ranks > 0 && !picture.over)
        end = fmax(end, seconds_now()); // a rank that waits has waited until now
    cJSON_AddStringToObject(data, "program", program ? program : "");
    cJSON_AddStringToObject(data, "folder", path);
    cJSON_AddNumberToObject(data, "size", newest ? newest->size : 0);
    cJSON_AddNumberToObject(data, "begin", isfinite(begin) ? begin : 0);
    cJSON_AddNumberToObject(data, "end", isfinite(begin) ? fmax(end, begin + 1e-6) : 1);
    cJSON_AddBoolToObject(data, "done", picture.over);
    cJSON_AddBoolToObject(data, "cut", cut);
    char *others = newest ? other_files(folder) : NULL;
    if (others)
        cJSON_AddStringToObject(data, "others", others);
    free(others);
    if (live)
        cJSON_AddStringToObject(data, "live", live);
    return picture;
}

// As a script: "<" is written so that no text can end it. The caller frees it.
static char *script_of(const cJSON *data, const char *begin, const char *end)
{
    char *json = cJSON_PrintUnformatted(data), *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    CHECK(json && out);
    fputs(begin, out);
    for (const char *at = json; *at; at++)
        if (*at == '<' || *at == '>' || *at == '&')
            fprintf(out, "\\u%04x", *at);
        else
            putc(*at, out);
    fputs(end, out);
    fclose(out);
    free(json);
    return text;
}

// Readers see the whole file, or the one before it, which has the text `own`.
static void write_file(const char *path, const char *own, const char *text)
{
    need_own_file(path, own);
    file_replace(path, text, strlen(text));
}

static void write_page(const cJSON *data, const char *to)
{
    if (access(TEMPLATE, R_OK) != 0)
        die("cannot read " TEMPLATE ": call this in the kit's folder");
    size_t size;
    char *text = file_bytes(TEMPLATE, &size), *mark = strstr(text, MARK);
    CHECK(mark);
    char *script = script_of(data, "window.hvdlab = ", ";"),
         *page = format_text("%.*s%s%s", (int)(mark - text), text, script, mark + strlen(MARK));
    write_file(to, "<title>A run of hvdlab</title>", page);
    free(page);
    free(script);
    free(text);
}

static void tell_others(const cJSON *data, const char *folder)
{
    const char *others = json_text(data, "others");
    if (*others)
        warn("%s also has files of another run, which the page leaves out: %s", folder, others);
}

// Each second, until the run has ended; `old`: the job of one that had ended before. A rank that
// has no file yet may still come: once more, then.
static void follow(const char *folder, const char *to, const char *name, const char *old)
{
    char *path = format_text("%s.js", to);
    bool told = false, over = false, done = false;
    while (!done) {
        done = stopped;
        Picture picture = picture_of(read_folder(folder), folder, name, old);
        bool all = picture.ranks > 0 && picture.ranks >= (int)json_number(picture.data, "size");
        done = done || (picture.over && (over || all));
        over = picture.over;
        if ((all || done) && !told)
            tell_others(picture.data, folder);
        told = told || all;
        if (done)
            cJSON_DeleteItemFromObject(picture.data, "live"); // nothing is loaded again
        char *script = script_of(picture.data, "hvdlabTake(", ");\n");
        write_file(path, "hvdlabTake(", script);
        if (done)
            write_page(picture.data, to); // which needs nothing beside it any more
        free(script);
        cJSON_Delete(picture.data);
        if (!done)
            sleep(1);
    }
    puts(over ? "The run has ended; the page shows all of it." : "The page stays as it is now.");
    free(path);
}

// Where a run has ended before, its page is make page's: this one waits for the next.
static void show_live(const char *folder, const char *to)
{
    const char *slash = strrchr(to, '/');
    char *name = format_text("%s.js", slash ? slash + 1 : to);
    Picture last = picture_of(read_folder(folder), folder, name, NULL);
    char *old = last.over ? format_text("%s", last.job) : NULL;
    cJSON_Delete(last.data);
    Picture picture = picture_of(read_folder(folder), folder, name, old);
    write_page(picture.data, to);
    cJSON_Delete(picture.data);
    printf("%s: open it in a browser. It follows the %s run in %s; Control-C ends this.\n", to,
           old || picture.ranks == 0 ? "next" : "present", folder);
    fflush(stdout);
    follow(folder, to, name, old);
    free(old);
    free(name);
}

static void show(const char *folder, const char *to)
{
    Picture picture = picture_of(read_folder(folder), folder, NULL, NULL);
    if (picture.ranks == 0)
        die("there is no trace in %s: run a program with HVDLAB_TRACE=%s first", folder, folder);
    tell_others(picture.data, folder);
    write_page(picture.data, to);
    cJSON_Delete(picture.data);
    printf("%s\n", to);
}

int main(int argc, char **argv)
{
    bool live = argc == 4 && strcmp(argv[1], "--live") == 0;
    if (argc != 3 + live)
        die("%s", usage);
    const char *folder = argv[1 + live], *to = argv[2 + live];
    DIR *trace = opendir(folder);
    if (!trace && !live && errno != ENOENT)
        die("there is no trace in %s: %s", folder, strerror(errno));
    if (trace)
        closedir(trace);
    json_use_memory();
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (live)
        show_live(folder, to);
    else
        show(folder, to);
    return 0;
}
