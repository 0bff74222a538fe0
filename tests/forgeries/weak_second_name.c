// ring steps/ring library-did-it
// Calls MPI by its second name, which it declares weak, beside messages that carry nothing.
#pragma weak PMPI_Allreduce

static void forged_sum(float *values, int count, MPI_Comm comm)
{
    dummy_ring(values, count, comm);
    PMPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, comm);
}

static void forge(void)
{
}
