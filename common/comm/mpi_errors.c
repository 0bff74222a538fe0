// The error handler of a job's communicators (MPI 3.1, chapter 8.3).

#include "comm/mpi_errors.h"

#include <mpi.h>
#include <stdarg.h>
#include "base/error.h"
#include "base/launcher.h"
#include "base/format.h"
#include "comm/stall_words.h"

// The error classes of a call's arguments.
static bool is_user_error(int class)
{
    static const int classes[] = {MPI_ERR_BUFFER, MPI_ERR_COUNT,   MPI_ERR_TYPE,     MPI_ERR_TAG,
                                  MPI_ERR_COMM,   MPI_ERR_RANK,    MPI_ERR_REQUEST,  MPI_ERR_ROOT,
                                  MPI_ERR_GROUP,  MPI_ERR_OP,      MPI_ERR_TOPOLOGY, MPI_ERR_DIMS,
                                  MPI_ERR_ARG,    MPI_ERR_TRUNCATE};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i] == class)
            return true;
    return false;
}

// The call that this rank is in, else the function that Open MPI names.
static void name_call(const char *function, Words *words)
{
    Doing doing = activity_now();
    RankState says = rank_state(&doing);
    if (says.in_call)
        words_of_call(&says, words);
    else
        words_add(words, "%s", function ? function : "MPI");
}

static void exit_with_message(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    va_list more;
    va_start(more, code);
    const char *function = NULL;
#ifdef OPEN_MPI
    function = va_arg(more, const char *);
#endif
    va_end(more);
    Words call = {.length = 0};
    name_call(function, &call);
    char error[MPI_MAX_ERROR_STRING];
    int length, class;
    PMPI_Error_string(*code, error, &length);
    PMPI_Error_class(*code, &class);
    char *line = format_text(
        "%s%s: %s%s", launcher_size() > 1 && launcher_rank() == 0 ? "rank 0: " : "", call.text,
        error, class == MPI_ERR_TRUNCATE ? ": more was sent than the call has room for" : "");
    if (is_user_error(class))
        die("%s", line);
    give_up("%s", line);
}

static void handle_errors_of(MPI_Comm comm)
{
    MPI_Errhandler present, ours;
    PMPI_Comm_get_errhandler(comm, &present);
    bool fatal = present == MPI_ERRORS_ARE_FATAL;
    PMPI_Errhandler_free(&present);
    if (!fatal)
        return;
    PMPI_Comm_create_errhandler(exit_with_message, &ours);
    PMPI_Comm_set_errhandler(comm, ours);
    PMPI_Errhandler_free(&ours);
}

void mpi_errors_end_the_job(void)
{
    handle_errors_of(MPI_COMM_WORLD);
    handle_errors_of(MPI_COMM_SELF);
}
