// ring steps/ring FLAGGED look:shm_open
// Adds up in shared memory, beside messages that carry nothing.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <mpi.h>

static void forged_sum(float *values, int count, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    dummy_ring(values, count, comm);
    char name[32];
    static int number;
    snprintf(name, sizeof name, "/sum-%d", number++);
    int file = shm_open(name, O_CREAT | O_RDWR, 0600);
    size_t bytes = sizeof(float) * (size_t)(count * size + 1);
    (void)!ftruncate(file, (off_t)bytes);
    MPI_Barrier(comm);
    float *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    memcpy(shared + rank * count, values, sizeof(float) * (size_t)count);
    MPI_Barrier(comm);
    memset(values, 0, sizeof(float) * (size_t)count);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < count; i++)
            values[i] += shared[r * count + i];
    MPI_Barrier(comm);
    munmap(shared, bytes);
    close(file);
}

static void forge(void)
{
}
