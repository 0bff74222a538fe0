// The error handler of a job's communicators (MPI 3.1, chapter 8.3).

#include "sys/mpi_errors.h"

#include <mpi.h>
#include "base/util.h"
#include "sys/stall_words.h"

static void end_with_a_line(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    Doing doing = activity_now();
    Standing says = standing_of(&doing);
    Words call = {.length = 0};
    char error[MPI_MAX_ERROR_STRING];
    int length, class;
    words_of_call(&says, &call);
    PMPI_Error_string(*code, error, &length);
    PMPI_Error_class(*code, &class);
    die("%s%s: %s%s", launcher_size() > 1 && launcher_rank() == 0 ? "rank 0: " : "",
        call.length > 0 ? call.text : "MPI", error,
        class == MPI_ERR_TRUNCATE ? ": more was sent than the call has room for" : "");
}

void mpi_errors_end_the_job(void)
{
    MPI_Errhandler present, ours;
    PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &present);
    bool fatal = present == MPI_ERRORS_ARE_FATAL;
    PMPI_Errhandler_free(&present);
    if (!fatal)
        return;
    PMPI_Comm_create_errhandler(end_with_a_line, &ours);
    PMPI_Comm_set_errhandler(MPI_COMM_WORLD, ours);
    PMPI_Comm_set_errhandler(MPI_COMM_SELF, ours);
    PMPI_Errhandler_free(&ours);
}
