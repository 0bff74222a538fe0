// What common/lessons/sweep.h promises, on as many ranks as mpirun started: right all-reduces have no
// wrong value, and those with a mistake as many as the mistake makes; which sizes are tried, on
// which communicator; what HVD_SWEEP's file holds. A check that fails says where and aborts the
// job.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lessons/sweep.h"

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: %s:%d: %s does not hold\n", hvd_rank(), __FILE__, __LINE__,  \
                    #condition);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void sum(float *values, size_t count, MPI_Comm comm)
{
    MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, comm);
}

// ---- Mistakes.

static void without_remainder(float *values, size_t count, MPI_Comm comm)
{
    sum(values, count - count % (size_t)hvd_size(), comm);
}

static void average(float *values, size_t count, MPI_Comm comm)
{
    sum(values, count, comm);
    for (size_t i = 0; i < count; i++)
        values[i] /= (float)hvd_size();
}

static void sum_of_too_many(float *values, size_t count, MPI_Comm comm)
{
    sum(values, count + 3, comm);
}

// What is behind the array comes from another rank, as it was there.
static void copy_of_too_many(float *values, size_t count, MPI_Comm comm)
{
    sum(values, count, comm);
    MPI_Bcast(values, (int)count + 3, MPI_FLOAT, 0, comm);
}

static void no_number_on_one(float *values, size_t count, MPI_Comm comm)
{
    sum(values, count, comm);
    if (hvd_rank() == hvd_size() - 1 && count > 0)
        values[count / 2] = NAN;
}

static void infinite(float *values, size_t count, MPI_Comm comm)
{
    sum(values, count, comm);
    if (count > 0)
        values[0] = INFINITY;
}

// The last rank has another sum in two places, the others in one.
static void different(float *values, size_t count, MPI_Comm comm)
{
    sum(values, count, comm);
    for (size_t i = 0; i < count && i < (hvd_rank() == hvd_size() - 1 ? 2 : 1); i++)
        values[i] += 1;
}

// The result of the first time, again and again.
static void stale(float *values, size_t count, MPI_Comm comm)
{
    static float kept[100];
    static bool has_kept;
    sum(values, count, comm);
    if (!has_kept)
        memcpy(kept, values, sizeof kept);
    has_kept = true;
    memcpy(values, kept, count * sizeof *values);
}

// As with half the bits.
static void rounded(float *values, size_t count, MPI_Comm comm)
{
    sum(values, count, comm);
    for (size_t i = 0; i < count; i++)
        values[i] = roundf(values[i] * 256) / 256;
}

static void does_nothing(float *values, size_t count, MPI_Comm comm)
{
    (void)values, (void)count, (void)comm;
}

// The wrong values that the second try of a size finds.
static size_t wrong_of(HvdAllreduce allreduce, size_t count)
{
    Sweep sweep;
    sweep_begin(&sweep, "test", allreduce, count);
    sweep_try(&sweep, count, false);
    SweepRow row = sweep_try(&sweep, count, false);
    sweep_end(&sweep);
    EXPECT(row.count == count && row.seconds <= 0);
    return row.wrong;
}

static void test_wrong_values(void)
{
    size_t ranks = (size_t)hvd_size();
    bool alone = ranks == 1;
    for (size_t count = 0; count < 20; count++) {
        EXPECT(wrong_of(NULL, count) == 0);
        EXPECT(wrong_of(sum, count) == 0);
        EXPECT(wrong_of(without_remainder, count) == count % ranks);
        EXPECT(wrong_of(average, count) == (alone ? 0 : count));
        EXPECT(wrong_of(does_nothing, count) == (alone ? 0 : count));
        EXPECT(wrong_of(sum_of_too_many, count) == (alone ? 0 : 3));
        EXPECT(wrong_of(copy_of_too_many, count) == (alone ? 0 : 3));
        EXPECT(wrong_of(no_number_on_one, count) == (count > 0));
        EXPECT(wrong_of(infinite, count) == (count > 0));
        EXPECT(wrong_of(different, count) == (count < 2 ? count : 2));
    }
    EXPECT(wrong_of(stale, 100) == 100);
    EXPECT(wrong_of(rounded, 10000) > 9000);
    EXPECT(wrong_of(NULL, 100003) == 0);
}

// ---- What a function of the program's gets.

static size_t tried[100];
static int tries;

static void note_size(float *values, size_t count, MPI_Comm comm)
{
    int same, length;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Comm_compare(comm, hvd_world().comm, &same);
    MPI_Comm_get_name(comm, name, &length);
    EXPECT(same == MPI_CONGRUENT && strcmp(name, "sweep") == 0);
    EXPECT(values != NULL && (size_t)values % 64 == 0);
    if (tries == 0 || tried[tries - 1] != count) // a size is timed several times
        tried[tries++] = count;
    sum(values, count, comm);
}

static void test_sizes(size_t largest, const size_t *expected, int count)
{
    tries = 0;
    sweep_allreduce("sizes", note_size, largest);
    EXPECT(tries == count);
    EXPECT(memcmp(tried, expected, (size_t)count * sizeof *tried) == 0);
}

static void test_all_sizes(void)
{
    test_sizes(0, (const size_t[]){0}, 1);
    test_sizes(1, (const size_t[]){0, 1}, 2); // once to check it, then in the table
    test_sizes(10, (const size_t[]){0, 1, 2, 3, 4, 5, 7, 10, 1, 4, 10}, 11);
    test_sizes(16, (const size_t[]){0, 1, 2, 3, 4, 5, 7, 10, 1, 4, 16}, 11);
    test_sizes(20, (const size_t[]){0, 1, 2, 3, 4, 5, 7, 10, 1, 4, 16, 20}, 12);
}

// ---- The table's measurements.

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static void test_figures(void)
{
    const SweepRow row = {.count = 250, .seconds = 1e-6}, untimed = {.count = 250};
    EXPECT(is_near(sweep_algorithm_bandwidth(&row), 1)); // 1000 bytes
    EXPECT(sweep_bus_bandwidth(&row, 1) <= 0);
    EXPECT(is_near(sweep_bus_bandwidth(&row, 2), 1));
    EXPECT(is_near(sweep_bus_bandwidth(&row, 4), 1.5));
    EXPECT(is_near(sweep_bus_bandwidth(&row, 8), 1.75));
    EXPECT(sweep_algorithm_bandwidth(&untimed) <= 0 && sweep_bus_bandwidth(&untimed, 4) <= 0);
}

// The slowest rank's time counts, and the median of several.
static void slow_on_one(float *values, size_t count, MPI_Comm comm)
{
    static int calls;
    sum(values, count, comm);
    if (hvd_rank() == hvd_size() - 1)
        usleep(++calls == 2 ? 300000 : 20000); // the first one is not timed
}

static void test_times(void)
{
    Sweep sweep;
    sweep_begin(&sweep, "slow", slow_on_one, 5);
    SweepRow row = sweep_try(&sweep, 5, true);
    sweep_end(&sweep);
    EXPECT(row.seconds >= 0.02 && row.seconds < 0.2);
}

// ---- Beside MPI_Allreduce.

static void slow_sum(float *values, size_t count, MPI_Comm comm)
{
    sum(values, count, comm);
    usleep(20000);
}

// What a call prints, on the root.
static void printed(HvdAllreduce allreduce, char *text, size_t size)
{
    FILE *file = tmpfile();
    EXPECT(file);
    fflush(stdout);
    int out = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    sweep_compare("own", allreduce, 1000);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

static void test_compare(void)
{
    char text[200];
    double ratio = 1;
    printed(slow_sum, text, sizeof text);
    bool told = hvd_rank() == 0 && hvd_size() > 1;
    EXPECT(told ==
           (sscanf(text, "own: %lf times the bandwidth of MPI_Allreduce, with", &ratio) == 1));
    EXPECT(!told || (ratio < 0.5 && strstr(text, " 1000 floats\n")));
}

// ---- HVD_SWEEP's file, and the end of the program.

static void write_results(char *path)
{
    setenv("HVD_SWEEP", path, 1);
    sweep_run("first", without_remainder, 4);
    sweep_run("second", NULL, 1);
    unsetenv("HVD_SWEEP");
}

static const char *const fields[] = {"\"oversubscribed\":", "\"microseconds\":",
                                     "\"algorithm_gb_per_second\":", "\"bus_gb_per_second\":"};

// Each line is of that sweep, in the order of the table.
static void check_result(const char *line, const char *name, int bytes, int wrong, bool timed)
{
    char begin[100], size[40], end[40];
    snprintf(begin, sizeof begin, "{\"collective\":\"%s\",\"ranks\":%d,", name, hvd_size());
    snprintf(size, sizeof size, "\"bytes\":%d,", bytes);
    snprintf(end, sizeof end, "\"wrong\":%d}\n", wrong);
    EXPECT(strstr(line, begin) == line && strstr(line, size) && strstr(line, end));
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        EXPECT(strstr(line, fields[i]));
    EXPECT(!strstr(line, "null") == timed);
}

static void check_results(const char *path)
{
    char line[500];
    FILE *file = fopen(path, "r");
    EXPECT(file);
    for (int count = 1; count <= 4; count++) { // the small ones, where they are wrong
        int wrong = count % hvd_size();
        if (wrong > 0 && fgets(line, sizeof line, file))
            check_result(line, "first", 4 * count, wrong, false);
    }
    for (int count = 1; count <= 4 && fgets(line, sizeof line, file); count *= 4)
        check_result(line, "first", 4 * count, count % hvd_size(), count % hvd_size() == 0);
    EXPECT(fgets(line, sizeof line, file));
    check_result(line, "second", 4, 0, true);
    EXPECT(!fgets(line, sizeof line, file));
    fclose(file);
}

static void test_results(void)
{
    char path[] = "/tmp/hvdlab-sweep-XXXXXX";
    int file = hvd_rank() == 0 ? mkstemp(path) : -1;
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    write_results(path);
    if (hvd_rank() != 0)
        return;
    check_results(path);
    close(file);
    unlink(path);
}

int main(void)
{
    hvd_init();
    test_wrong_values();
    test_all_sizes();
    test_figures();
    test_times();
    test_compare();
    test_results();
    // The last of all: it does not return.
    setenv("HVD_SWEEP", "/dev/null", 1);
    sweep_allreduce("end", NULL, 1);
    EXPECT(false);
}
