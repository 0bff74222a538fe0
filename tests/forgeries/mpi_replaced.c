// ring steps/ring does-not-compile|not-summed|UNTOUCHED
// Defines a function of MPI itself.
#include <mpi.h>

int MPI_Send(const void *b, int c, MPI_Datatype t, int to, int tag, MPI_Comm comm)
{
    (void)b, (void)c, (void)t, (void)to, (void)tag, (void)comm;
    return MPI_SUCCESS;
}

static void forge(void)
{
}
