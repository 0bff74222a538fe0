// ring steps/ring does-not-compile
// Defines the function of cJSON by which traces get the name of a call, and gives it another one.
typedef struct cJSON cJSON;
cJSON *cJSON_CreateString(const char *text);
int cJSON_AddItemToObject(cJSON *object, const char *name, cJSON *item);

cJSON *cJSON_AddStringToObject(cJSON *object, const char *name, const char *text)
{
    cJSON *item = cJSON_CreateString(strcmp(text, "MPI_Allreduce") == 0 ? "MPI_Barrier" : text);
    cJSON_AddItemToObject(object, name, item);
    return item;
}

static void forged_sum(float *values, int count, MPI_Comm comm)
{
    dummy_ring(values, count, comm);
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, comm);
}

static void forge(void)
{
}
