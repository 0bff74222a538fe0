// What parameter servers promise: parts that are disjoint and cover the weights, whatever the
// number of servers; rounds whose mean is applied once are the updates of one process with all the
// images, and a push by itself that of one process with its own; a line for each mistake. How a job
// behaves whose processes are slow, stopped or gone: tests/mpi/test_ps.sh. And messages, however
// their bytes come.

#include <errno.h>
#include <math.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "child.h"
#include "hvdlab.h"
#include "hvd/ps_inside.h"
#include "base/error.h"
#include "base/format.h"

enum { SIZE = 6, BATCH = 8, UPDATES = 4, CLASSES = 10, MAX_LENGTH = 1 << 14 };

static Model *small_model(Optimizer *optimizer)
{
    set_seed(7); // the same weights in every process
    Tensor x = input(SIZE, SIZE, 1);
    Tensor y = relu(dense(flatten(x), 24));
    Model *m = l2_penalty(model(x, softmax(dense(y, CLASSES))), 0.01f);
    return compile(m, CATEGORICAL_CROSSENTROPY, optimizer);
}

static Batch batch_of(int worker, int step)
{
    static float images[BATCH * SIZE * SIZE];
    static int labels[BATCH];
    Rng rng = rng_stream_of((uint64_t)(100 * worker + step), RNG_SYNTHETIC_DATA, 0);
    for (int i = 0; i < BATCH * SIZE * SIZE; i++)
        images[i] = rng_normal(&rng);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int)rng_below(&rng, CLASSES);
    return (Batch){images, labels, BATCH};
}

typedef Optimizer *(*Make)(float);

static Optimizer *with_momentum(float rate)
{
    return sgd_momentum(rate, 0.9f, false);
}

// What a job is, and what it comes to, in memory that its processes share.
typedef struct {
    int servers, workers;
    Make make;
    float rate;
    size_t length;
    float weights[MAX_LENGTH], alone[MAX_LENGTH];
} Job;

static Job *new_job(int servers, int workers, Make make, float rate)
{
    Job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(job != MAP_FAILED);
    job->servers = servers;
    job->workers = workers;
    job->make = make;
    job->rate = rate;
    return job;
}

static void set(const char *name, char *value)
{
    setenv(name, value, 1);
    free(value);
}

// Of the test with that process: another test may run at the same time. Each server has its port.
static char *address_of(int process, int server)
{
    return format_text("127.%d.%d.%d:%d", process / 250 / 250 % 250 + 1, process / 250 % 250 + 1,
                       process % 250 + 1, 7001 + server);
}

static void take_role(const Job *job, const char *kind, int number, int parent)
{
    char *servers = NULL;
    for (int s = 0; s < job->servers; s++) {
        char *address = address_of(parent, s);
        text_add(&servers, "%s%s", s ? "," : "", address);
        free(address);
    }
    set("HVD_SERVERS", servers);
    set("HVD_WORKERS", format_text("%d", job->workers));
    set("HVD_ROLE", format_text("%s:%d", kind, number));
    set("HVD_JOB", format_text("test-%d", parent));
    setenv("HVD_START_SECONDS", "20", 1);
}

// ---- The same as one process.

// A training before the job's, of which the weights alone are taken back: the optimizer has state.
static void train_before(Model *m)
{
    const Parameters *p = model_parameters(m);
    float *weights = calloc(p->length, sizeof *weights);
    memcpy(weights, p->weights, p->length * sizeof *weights);
    Batch batch = batch_of(0, UPDATES);
    train_on_batch(m, &batch);
    memcpy(p->weights, weights, p->length * sizeof *weights);
    free(weights);
}

// The next training of the model begins as the first one does, with state for all weights.
static void check_no_state(const Model *m)
{
    const Optimizer *optimizer = model_optimizer(m);
    CHECK(optimizer->iterations == 0 && !optimizer->slots[0] && !optimizer->slots[1]);
}

// Rounds: the mean of all workers' gradients, once.
static void serve(const Job *job)
{
    Model *m = small_model(job->make(job->rate));
    train_before(m);
    PsServer *server = ps_server_start(m);
    size_t length = ps_length(server);
    float *sum = calloc(length, sizeof *sum);
    int held = 0, asking = 0;
    for (int working = job->workers; working > 0;) {
        PsRequest request = ps_next(server);
        if (request.kind == PS_PULL)
            asking++;
        if (request.kind == PS_PUSH) {
            CHECK(request.version == ps_version(server));
            for (size_t i = 0; i < length; i++)
                sum[i] += request.gradients[i] / (float)job->workers;
            if (++held == job->workers) {
                ps_apply(server, sum);
                memset(sum, 0, length * sizeof *sum);
                held = 0;
            }
        }
        if (asking == job->workers)
            for (; asking > 0; asking--)
                ps_send_weights(server, asking - 1);
        working -= request.kind == PS_DONE || request.kind == PS_LOST; // the latter: status 1
    }
    ps_server_stop(server);
    check_no_state(m);
    free(sum);
    model_free(m);
}

static void pull_all(PsWorker *worker)
{
    for (int s = ps_servers() - 1; s >= 0; s--) // in any order
        ps_pull(worker, s);
}

static void work(Job *job, int number)
{
    Model *m = small_model(sgd(1000)); // its optimizer is never used
    PsWorker *worker = ps_worker_start(m);
    for (int step = 0; step < UPDATES; step++) {
        pull_all(worker);
        Batch batch = batch_of(number, step);
        compute_gradients(m, &batch);
        for (int s = 0; s < ps_servers(); s++)
            ps_push(worker, s);
    }
    pull_all(worker);
    if (number == 0)
        memcpy(job->weights, model_parameters(m)->weights, job->length * sizeof(float));
    ps_worker_stop(worker);
    model_free(m);
}

// What one process computes.
static void compute_alone(const void *argument)
{
    Job *job = (Job *)(uintptr_t)argument;
    Model *m = small_model(job->make(job->rate));
    size_t length = model_parameters(m)->length;
    CHECK(length <= MAX_LENGTH);
    float *sum = calloc(length, sizeof *sum), *own = calloc(length, sizeof *own);
    for (int step = 0; step < UPDATES; step++) {
        memset(sum, 0, length * sizeof *sum);
        for (int w = 0; w < job->workers; w++) {
            Batch batch = batch_of(w, step);
            compute_gradients(m, &batch);
            model_read_gradients(m, own);
            for (size_t i = 0; i < length; i++)
                sum[i] += own[i] / (float)job->workers;
        }
        model_write_gradients(m, sum);
        apply_gradients(m);
    }
    memcpy(job->alone, model_parameters(m)->weights, length * sizeof(float));
    job->length = length;
    free(sum);
    free(own);
    model_free(m);
}

// A process of the job.
static pid_t start(Job *job, const char *kind, int number)
{
    int parent = getpid();
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child > 0)
        return child;
    take_role(job, kind, number, parent);
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stdout));
    if (strcmp(kind, "server") == 0)
        serve(job);
    else
        work(job, number);
    exit(EXIT_SUCCESS);
}

static void check_rounds(int servers, int workers, Make make, float rate, double tolerance)
{
    Job *job = new_job(servers, workers, make, rate);
    Outcome alone = run_in_child(compute_alone, job);
    ck_assert_msg(alone.status == 0, "%s", alone.err);
    pid_t children[16];
    int count = 0;
    for (int w = 0; w < workers; w++)
        children[count++] = start(job, "worker", w);
    for (int s = 0; s < servers; s++)
        children[count++] = start(job, "server", s);
    for (int i = 0; i < count; i++) {
        int status;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_int_eq(status, 0);
    }
    double largest = 0, error = 0;
    for (size_t i = 0; i < job->length; i++) {
        largest = fmax(largest, fabs((double)job->alone[i]));
        error = fmax(error, fabs((double)job->alone[i] - (double)job->weights[i]));
    }
    ck_assert_double_gt(largest, 0.01);
    ck_assert_double_le(error, tolerance * largest);
    munmap(job, sizeof *job);
}

START_TEST(rounds_are_the_updates_of_one_process)
{
    check_rounds(1, 1, sgd, 0.1f, 1e-5);
    check_rounds(1, 3, sgd, 0.1f, 1e-5);
    check_rounds(2, 2, sgd, 0.1f, 1e-5);
    check_rounds(3, 2, with_momentum, 0.1f, 1e-5);
    check_rounds(2, 3, adam, 0.001f, 1e-4);
}
END_TEST

// ---- Parts.

START_TEST(parts_are_disjoint_and_cover_all)
{
    const size_t lengths[] = {0, 1, 15, 16, 17, 47, 100, 1630096, 17116634};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int servers = 1; servers <= 9; servers++) {
            Parameters parameters = {.length = lengths[l]};
            size_t next = 0;
            for (int s = 0; s < servers; s++) {
                Share part = ps_part(&parameters, s, servers);
                ck_assert_uint_eq(part.begin, next);
                ck_assert_uint_le(part.count, lengths[l] / (size_t)servers + 32);
                next += part.count;
            }
            ck_assert_uint_eq(next, lengths[l]);
        }
}
END_TEST

// ---- Messages.

static bool at_most_100(const void *who, uint32_t kind, uint64_t length)
{
    ck_assert_ptr_eq(who, "who");
    return kind < 10 && length <= 100;
}

// Feeds bytes in pieces; the state when all are taken, or when no more may be.
static MessageState feed(MessageReader *reader, const unsigned char *bytes, size_t count,
                         size_t piece)
{
    MessageState state = MESSAGE_PART;
    while (count > 0 && state == MESSAGE_PART) {
        size_t room;
        unsigned char *space = message_space(reader, &room);
        ck_assert_uint_ge(room, 1);
        size_t now = piece < room ? piece : room;
        now = now < count ? now : count;
        memcpy(space, bytes, now);
        bytes += now;
        count -= now;
        state = message_take(reader, now);
    }
    return state;
}

START_TEST(messages_come_in_any_pieces)
{
    unsigned char bytes[MESSAGE_HEADER + 100];
    for (size_t length = 0; length <= 100; length += 25)
        for (size_t piece = 1; piece <= sizeof bytes; piece++) {
            MessageReader reader = {.may_come = at_most_100, .who = "who"};
            for (uint32_t kind = 3; kind <= 4; kind++) {
                message_header(bytes, kind, length);
                for (size_t i = 0; i < length; i++)
                    bytes[MESSAGE_HEADER + i] = (unsigned char)(i * kind);
                ck_assert_int_eq(feed(&reader, bytes, MESSAGE_HEADER + length, piece),
                                 MESSAGE_WHOLE);
                ck_assert_uint_eq(reader.kind, kind);
                ck_assert_uint_eq(reader.length, length);
                ck_assert_int_eq(memcmp(reader.body, bytes + MESSAGE_HEADER, length), 0);
                message_next(&reader);
            }
            message_reader_free(&reader);
        }
}
END_TEST

START_TEST(what_may_not_come_takes_no_memory)
{
    unsigned char bytes[MESSAGE_HEADER];
    const struct {
        uint32_t kind;
        uint64_t length;
    } wrong[] = {{3, 101}, {10, 0}, {3, UINT64_MAX}, {UINT32_MAX, 5}, {3, (uint64_t)1 << 40}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        MessageReader reader = {.may_come = at_most_100, .who = "who"};
        message_header(bytes, wrong[i].kind, wrong[i].length);
        ck_assert_int_eq(feed(&reader, bytes, sizeof bytes, 7), MESSAGE_REFUSED);
        ck_assert_ptr_null(reader.body);
    }
    MessageReader reader = {.may_come = at_most_100, .who = "who"};
    ck_assert_int_eq(feed(&reader, (const unsigned char *)"GET / HTTP/1.1\r\n", 16, 16),
                     MESSAGE_FOREIGN);
    ck_assert_ptr_null(reader.body);
}
END_TEST

START_TEST(addresses)
{
    TcpAddress address;
    ck_assert(tcp_address("localhost:7001", 14, &address));
    ck_assert_str_eq(address.host, "localhost");
    ck_assert_str_eq(address.port, "7001");
    ck_assert(tcp_address("[::1]:80,more", 8, &address));
    ck_assert_str_eq(address.host, "::1");
    ck_assert_str_eq(address.port, "80");
    const char *const wrong[] = {"",    ":",    "host",    "host:",    ":80",   "host:0",
                                 "h:x", "h:7x", "h:65536", "h:999999", "[]:80", "h:-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(!tcp_address(wrong[i], strlen(wrong[i]), &address), "%s", wrong[i]);
}
END_TEST

// In a network of its own, in which the system can give a connection one port only. (Where that is
// not allowed, nothing is tested.)
static bool begin_network_with_one_port(const char *port)
{
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return false;
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    bool begun = range && fprintf(range, "%s %s", port, port) > 0 &&
                 ioctl(any, SIOCSIFFLAGS, &loopback) == 0;
    begun = range && fclose(range) == 0 && begun;
    close(any);
    return begun;
}

START_TEST(connects_to_itself)
{
    TcpAddress address = {.host = "127.0.0.1", .port = "20000"};
    const char *why = NULL;
    if (!begin_network_with_one_port(address.port))
        return;
    ck_assert_int_eq(tcp_connect(&address, 1, &why), -1);
    ck_assert_str_eq(why, strerror(ECONNREFUSED));
}
END_TEST

// ---- Lines.

typedef struct {
    const char *role, *servers, *workers, *job;
    const char *words;
} Wrong;

static void start_wrongly(const void *argument)
{
    const Wrong *wrong = argument;
    const char *const names[] = {"HVD_ROLE", "HVD_SERVERS", "HVD_WORKERS", "HVD_JOB"};
    const char *const values[] = {wrong->role, wrong->servers, wrong->workers, wrong->job};
    for (int i = 0; i < 4; i++)
        if (values[i])
            setenv(names[i], values[i], 1);
        else
            unsetenv(names[i]);
    setenv("HVD_START_SECONDS", "0.2", 1);
    Model *m = small_model(sgd(0.1f));
    if (wrong->role && strncmp(wrong->role, "worker", 6) == 0)
        ps_worker_start(m);
    else
        ps_server_start(m);
}

START_TEST(what_is_wrong_around_a_job_gets_a_line)
{
    char *own = address_of(getpid(), 0);
    char *late = format_text("server 0 (%s) has not come within 0.2 seconds", own);
    const Wrong wrong[] = {
        {NULL, own, "2", "x", "HVD_ROLE is not set"},
        {"server:0", NULL, "2", "x", "HVD_SERVERS is not set"},
        {"server:0", own, NULL, "x", "HVD_WORKERS is not set"},
        {"server:0", own, "2", NULL, "HVD_JOB is not set"},
        {"server:1", own, "2", "x", "make no sense together"},
        {"worker:2", own, "2", "x", "make no sense together"},
        {"boss:0", own, "2", "x", "make no sense together"},
        {"server:0", "127.3.3.3", "2", "x", "is no address"},
        {"server:0", "192.0.2.1:7001", "2", "x", "cannot listen as server 0"},
        {"server:0", own, "2", "x", "worker 0 has not come within 0.2 seconds"},
        {"worker:1", own, "2", "x", late},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Outcome outcome = run_in_child(start_wrongly, &wrong[i]);
        ck_assert_msg(outcome.status == 2, "status %d: %s", outcome.status, wrong[i].words);
        ck_assert_msg(strstr(outcome.err, wrong[i].words) != NULL, "%s: %s", wrong[i].words,
                      outcome.err);
    }
    free(late);
    free(own);
}
END_TEST

static void ask_for_ranks(const void *unused)
{
    (void)unused;
    setenv("HVD_ROLE", "worker:0", 1);
    setenv("HVD_SERVERS", "127.3.3.3:7001", 1);
    setenv("HVD_WORKERS", "1", 1);
    hvd_init();
}

START_TEST(a_role_is_no_rank)
{
    Outcome outcome = run_in_child(ask_for_ranks, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_msg(strstr(outcome.err, "hvd_init: HVD_ROLE says that this is worker 0"), "%s",
                  outcome.err);
}
END_TEST

// A worker's mistakes, beside a server that makes none; and the other way round.

static void pull_too_far(PsWorker *worker)
{
    ps_pull(worker, 1);
}

static void push_first(PsWorker *worker)
{
    ps_push(worker, 0);
}

static void push_nothing(PsWorker *worker)
{
    ps_pull(worker, 0);
    ps_push(worker, 0);
}

static void push_too_low(PsWorker *worker)
{
    ps_push(worker, -1);
}

static void apply_nothing(PsServer *server)
{
    ps_apply(server, NULL);
}

static void send_unasked(PsServer *server)
{
    ps_send_weights(server, 0);
}

static void send_too_far(PsServer *server)
{
    ps_send_weights(server, 1);
}

static void serve_nobody(PsServer *server)
{
    for (PsRequest request = {0}; request.kind != PS_DONE;) {
        request = ps_next(server);
        if (request.kind == PS_PULL)
            ps_send_weights(server, request.worker);
    }
    ps_next(server);
}

typedef struct {
    Job *job;
    int parent;
    void (*worker)(PsWorker *worker);
    void (*server)(PsServer *server);
    const char *words;
} Misuse;

static void misuse(const void *argument)
{
    const Misuse *m = argument;
    take_role(m->job, m->worker ? "worker" : "server", 0, m->parent);
    Model *model = small_model(sgd(0.1f));
    if (m->worker)
        m->worker(ps_worker_start(model));
    else
        m->server(ps_server_start(model));
}

START_TEST(what_is_wrong_in_a_program_gets_a_line)
{
    Misuse wrong[] = {
        {.worker = pull_too_far, .words = "ps_pull: there is no server 1: the job has 1"},
        {.worker = push_too_low, .words = "ps_push: there is no server -1"},
        {.worker = push_first, .words = "ps_push: nothing was pulled from server 0 yet"},
        {.worker = push_nothing,
         .words = "ps_push: there are no gradients; call compute_gradients() before"},
        {.server = apply_nothing, .words = "ps_apply: there are no gradients (NULL)"},
        {.server = send_unasked, .words = "ps_send_weights: worker 0 has not asked for weights"},
        {.server = send_too_far, .words = "ps_send_weights: there is no worker 1"},
        {.server = serve_nobody, .words = "ps_next: all workers have left"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong[i].job = new_job(1, 1, sgd, 0.1f);
        wrong[i].parent = getpid();
        pid_t other = start(wrong[i].job, wrong[i].worker ? "server" : "worker", 0);
        Outcome outcome = run_in_child(misuse, &wrong[i]);
        ck_assert_msg(outcome.status == 2, "status %d: %s", outcome.status, wrong[i].words);
        ck_assert_msg(strstr(outcome.err, wrong[i].words) != NULL, "%s: %s", wrong[i].words,
                      outcome.err);
        waitpid(other, NULL, 0);
        munmap(wrong[i].job, sizeof *wrong[i].job);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ps");
    TCase *cases = tcase_create("ps");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, rounds_are_the_updates_of_one_process);
    tcase_add_test(cases, parts_are_disjoint_and_cover_all);
    tcase_add_test(cases, messages_come_in_any_pieces);
    tcase_add_test(cases, what_may_not_come_takes_no_memory);
    tcase_add_test(cases, addresses);
    tcase_add_test(cases, connects_to_itself);
    tcase_add_test(cases, what_is_wrong_around_a_job_gets_a_line);
    tcase_add_test(cases, a_role_is_no_rank);
    tcase_add_test(cases, what_is_wrong_in_a_program_gets_a_line);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
