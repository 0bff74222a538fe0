// What the ranks printed, and what mpirun says of their end.

#include "output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"
#include "base/memory.h"

// A tag is "[JOB,RANK]<stdout>:" or "...<stderr>:", with a space behind it in Open MPI 5.
static Line take_line(char *text)
{
    Line line = {.rank = MPIRUN, .text = text};
    char *tag_end = text[0] == '[' ? strstr(text, "]<std") : NULL;
    char *colon = tag_end ? strchr(tag_end, ':') : NULL;
    if (!colon)
        return line;
    *tag_end = '\0';
    const char *comma = strrchr(text, ',');
    line.rank = comma ? atoi(comma + 1) : MPIRUN;
    line.error = strncmp(tag_end + 1, "<stderr", 7) == 0;
    line.text = colon + 1 + (colon[1] == ' ');
    return line;
}

Output output_read(const char *text)
{
    Output output = {.text = format_text("%s", text ? text : "")};
    for (char *at = output.text, *next; *at; at = next) {
        size_t length = strcspn(at, "\r\n");
        next = at + length + (at[length] != '\0');
        at[length] = '\0';
        Line line = take_line(at);
        if (!*line.text)
            continue;
        output.lines = enlarge(output.lines, (size_t)output.count + 1, sizeof line);
        output.lines[output.count++] = line;
    }
    return output;
}

void output_free(Output *output)
{
    free(output->lines);
    free(output->text);
    *output = (Output){0};
}

int output_count(const Output *output, int rank)
{
    int count = 0;
    for (int i = 0; i < output->count; i++)
        count += output->lines[i].rank == rank && !output->lines[i].error;
    return count;
}

const char *output_first(const Output *output, int rank)
{
    for (int i = 0; i < output->count; i++)
        if (output->lines[i].rank == rank && !output->lines[i].error)
            return output->lines[i].text;
    return NULL;
}

bool output_says(const Output *output, const char *words)
{
    for (int i = 0; i < output->count; i++)
        if (output->lines[i].error && strstr(output->lines[i].text, words))
            return true;
    return false;
}

// What stands behind these words; NULL: they are not there.
static const char *behind(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    return at ? at + strlen(words) : NULL;
}

// "mpirun noticed that process rank 2 with PID 1 on node x exited on signal 11 (Segmentation
// fault)." Open MPI 5 wraps the line at any space; `next` is the one after it.
static bool find_signal(const char *text, const char *next, int victim, FailedRank *failed)
{
    const char *rank = behind(text, "noticed that process rank ");
    if (!rank || atoi(rank) == victim)
        return false;
    char *whole = format_text("%s %s", rank, next);
    const char *signal = behind(whole, " on signal ");
    bool found = signal != NULL;
    if (found) {
        failed->rank = atoi(rank);
        snprintf(failed->how, sizeof failed->how, "was ended by signal %.*s",
                 (int)strcspn(signal, "."), signal);
    }
    free(whole);
    return found;
}

static void set_status(FailedRank *failed, const char *verb, const char *digits)
{
    failed->status = atoi(digits);
    snprintf(failed->how, sizeof failed->how, "%s with status %d", verb, failed->status);
}

// "  Process name: [[37042,1],2]" (Open MPI 4) or "[prterun-x-549@1,2]" (5), and, on the next
// line, "  Exit code:    3"
static void find_status(const char *text, FailedRank *failed)
{
    const char *name = behind(text, "Process name:"), *code = behind(text, "Exit code:");
    if (name && strrchr(name, ','))
        failed->rank = atoi(strrchr(name, ',') + 1);
    if (code)
        set_status(failed, "ended", code);
    // "process rank 2 ended with status 3.", as common/scripts/servers.sh says it.
    const char *rank = behind(text, "process rank "), *status = behind(text, " ended with status ");
    if (rank && status && atoi(status) > failed->status) {
        failed->rank = atoi(rank);
        set_status(failed, "ended", status);
    }
}

// "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD", and on the next line "with
// errorcode 2." (Open MPI 4), or two lines on "  Errorcode: 2" (5).
static void find_abort(const char *text, FailedRank *failed)
{
    const char *rank = behind(text, "invoked on rank "), *code = strcasestr(text, "errorcode");
    if (rank)
        failed->rank = atoi(rank);
    if (code)
        set_status(failed, "gave up", code + strcspn(code, "-0123456789"));
}

FailedRank output_failed_rank(const Output *output, int victim)
{
    FailedRank failed = {.rank = -1};
    for (int i = 0; i < output->count; i++) {
        if (output->lines[i].rank != MPIRUN)
            continue;
        const char *next = "";
        for (int k = i + 1; k < output->count && !*next; k++)
            if (output->lines[k].rank == MPIRUN)
                next = output->lines[k].text;
        if (find_signal(output->lines[i].text, next, victim, &failed))
            break;
        find_status(output->lines[i].text, &failed);
        find_abort(output->lines[i].text, &failed);
    }
    if (failed.rank >= MAX_RANKS || !*failed.how)
        failed.rank = -1;
    return failed;
}
