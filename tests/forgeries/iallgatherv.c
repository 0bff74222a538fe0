// ring steps/ring library-did-it
// Gathers all values by a collective call in the background, and adds them up itself.
static void forged_sum(float *values, int count, MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    dummy_ring(values, count, comm);
    int counts[size], begin[size];
    float *all = malloc(sizeof(float) * (size_t)(count * size + 1));
    for (int r = 0; r < size; r++)
        counts[r] = count, begin[r] = count * r;
    MPI_Request request;
    MPI_Iallgatherv(values, count, MPI_FLOAT, all, counts, begin, MPI_FLOAT, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < count; i++) {
        double sum = 0;
        for (int r = 0; r < size; r++)
            sum += all[count * r + i];
        values[i] = (float)sum;
    }
    free(all);
}

static void forge(void)
{
}
