#!/usr/bin/env bash
# Children that a rank starts (fork, popen, system) end as they would without MPI, and take nothing from their parent;
# the stall watch joins the root however the machine schedules it, and listens on this machine alone.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_TRACE HVDLAB_FLAGS HVD_STALL_SECONDS HVD_STALL_SHUTDOWN_SECONDS

cat >"$folder/forks.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "hvdlab.h"

static float value = 1;

// What a child does: its end is its exit status, or 99.
static int child(const char *what)
{
    if (strcmp(what, "shuts down") == 0)
        hvd_shutdown();
    if (strcmp(what, "prints") == 0)
        printf("child of rank %d of %d\n", hvd_rank(), hvd_size());
    if (strcmp(what, "communicates") == 0)
        hvd_allreduce(&value, 1, HVD_SUM);
    if (strcmp(what, "waits") == 0)
        hvd_barrier();
    if (strcmp(what, "fails") == 0)
        exit(7);
    return 0;
}

int main(int argc, char **argv)
{
    hvd_init();
    parse_args(argc - 1, argv + 1);
    const char *what = argv[1];
    if (strcmp(what, "popen") == 0) {
        char line[32] = "";
        FILE *pipe = popen("echo 5", "r");
        if (!pipe || !fgets(line, sizeof line, pipe) || pclose(pipe) != 0)
            return 3;
        printf("status %d\n", atoi(line));
    } else if (strcmp(what, "system") == 0)
        printf("status %d\n", system("exit 7") >> 8);
    else {
        pid_t process = fork();
        if (process == 0)
            return child(what);
        int status;
        waitpid(process, &status, 0);
        printf("status %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 99);
    }
    hvd_allreduce(&value, 1, HVD_SUM);
    printf("sum %g\n", (double)value);
    return 0;
}
END
"$build/compile-step" "$folder/forks.c" "$folder/forks" || exit 1

# try RANKS NAME LINE: the program ends soon, with this line of each rank.
try()
{
    local launch=(mpirun -np "$1")
    [[ $1 -gt 1 ]] || launch=()
    limit=20 succeeds env HVD_TIMELINE="$folder/timeline-$1" "${launch[@]}" "$folder/forks" "$2" --checkpoint-dir "$folder/none"
    [[ $(grep -c "^$3\$" "$folder/out") -eq $1 && $(grep -c "^sum $1\$" "$folder/out") -eq $1 ]] ||
        fail "$2 on $1 ranks: $(cat "$folder/out")"
    [[ $(grep -c 'did nothing' "$folder/err") -eq 1 ]] || fail "$2 on $1 ranks, not once: $(cat "$folder/err")"
    [[ $1 -eq 1 ]] || grep -q hvd_allreduce "$folder/timeline-$1" || fail "$2 on $1 ranks: the timeline is not the parent's"
}
for ranks in 1 2; do
    try $ranks returns "status 0"
    try $ranks fails "status 7"
    try $ranks "shuts down" "status 0"
    try $ranks prints "status 0"
    try $ranks system "status 7"
    try $ranks popen "status 5"
    try $ranks communicates "status 2"
    grep -q 'was forked after hvd_init' "$folder/err" || fail "the child that communicates is not named: $(cat "$folder/err")"
    try $ranks waits "status 2"
done

# A thread of the stall watch that loses its core whenever its poll has ended without news.
cat >"$folder/slow.c" <<'END'
#include <dlfcn.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
int poll(struct pollfd *files, nfds_t count, int milliseconds)
{
    int (*original)(struct pollfd *, nfds_t, int) = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
    char name[16] = "";
    int found = original(files, count, milliseconds);
    prctl(PR_GET_NAME, name);
    if (found == 0 && strcmp(name, "stall") == 0)
        usleep(240000);
    return found;
}
END
cat >"$folder/meet.c" <<'END'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "hvdlab.h"
int main(void)
{
    hvd_init();
    if (getenv("STOPS") && hvd_rank() == 0 && system("(sleep 7; kill -CONT $PPID) &") == 0)
        kill(getpid(), SIGSTOP);
    if (getenv("STOPS") && hvd_rank() > 0)
        sleep(10);
    usleep(300000);
    if (getenv("LEAVES") && hvd_rank() == 1)
        return 0;
    hvd_barrier();
    if (getenv("SOCKETS") && hvd_rank() == 0)
        return system("sed 's/^/socket /' /proc/$PPID/net/tcp >\"$SOCKETS.all\"; ls -l /proc/$PPID/fd >\"$SOCKETS\"") != 0;
    return 0;
}
END
"$build/compile-step" "$folder/meet.c" "$folder/meet" || exit 1
# Unknown clients of the stall watch, before any rank can be one: some are silent, some say what makes no sense. (Open
# MPI's own sockets do not listen on the loopback address.)
cat >"$folder/unknown.c" <<'END'
#include <arpa/inet.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>
int listen(int listener, int backlog)
{
    int (*original)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
    int result = original(listener, backlog + 40);
    struct sockaddr_in own = {0};
    socklen_t length = sizeof own;
    getsockname(listener, (struct sockaddr *)&own, &length);
    for (int i = 0; own.sin_family == AF_INET && own.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && i < 40; i++) {
        static const char words[] = "GET / HTTP/1.0\r\n\r\n", kind[512] = "hvd1d\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f";
        int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        connect(client, (struct sockaddr *)&own, sizeof own);
        if (i % 3 > 0)
            send(client, i % 3 == 1 ? words : kind, i % 3 == 1 ? sizeof words : sizeof kind, MSG_NOSIGNAL);
    }
    return result;
}
END
# Ranks that connect to the root late.
cat >"$folder/late.c" <<'END'
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int connect(int socket, const struct sockaddr *to, socklen_t length)
{
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (strcmp(name, "stall") == 0)
        usleep(500000);
    return (int)syscall(SYS_connect, socket, to, length);
}
END
# Where the root should be another program listens, which never answers.
cat >"$folder/silent.c" <<'END'
#include <arpa/inet.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int connect(int from, const struct sockaddr *to, socklen_t length)
{
    static struct sockaddr_in silent;
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (strcmp(name, "stall") != 0)
        return (int)syscall(SYS_connect, from, to, length);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    silent = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    length = sizeof silent;
    bind(listener, (struct sockaddr *)&silent, length);
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&silent, &length);
    return (int)syscall(SYS_connect, from, &silent, length);
}
END
for library in slow unknown late silent; do
    "${CC:-gcc}" -D_GNU_SOURCE -shared -fPIC -o "$folder/$library.so" "$folder/$library.c" -ldl || fail "$library.c does not compile"
done
if ldd "$folder/meet" | grep -qE 'lib(a|t)san'; then
    echo "the stall's thread is not slowed down: the sanitizer's library has to be the first"
else
    for ((i = 0; i < 5; i++)); do
        begin=${EPOCHREALTIME/./}
        HVD_STALL_SECONDS=2 succeeds mpirun -np 3 -x LD_PRELOAD="$folder/slow.so" "$folder/meet"
        took=$(((${EPOCHREALTIME/./} - begin) / 1000))
        [[ $took -lt 9000 ]] || fail "the job's end took $took ms"
        ! grep 'not been heard of' "$folder/err" || fail "a rank has not joined the root"
    done
    limit=20 LEAVES=yes run mpirun -np 3 -x LD_PRELOAD="$folder/unknown.so" "$folder/meet"
    [[ $status -eq 2 ]] && grep -q 'rank 1 has left main (exit status 0) while ranks 0 and 2 wait' "$folder/err" ||
        fail "among unknown clients: status $status: $(cat "$folder/err")"
    # The job ends after ten seconds in which nothing has been heard.
    limit=40 succeeds mpirun -np 3 -x LD_PRELOAD="$folder/silent.so" "$folder/meet"
    # On several machines the root has several addresses. It is stopped for so long that a rank tries all of them.
    HVD_STALL_SECONDS=20 STOPS=yes succeeds mpirun -np 3 -x LD_PRELOAD="$folder/late.so" \
        env OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "$folder/meet"
    ! grep '^meet: ' "$folder/err" || fail "a root that answers late: something is said of it"
fi

# Simulated hosts are on this machine: the stall watch listens on the loopback address, whatever Open MPI's own sockets
# do. (0A: a socket that listens; 0100007F: 127.0.0.1.)
for layout in 0,0 0,1; do
    HVD_LAYOUT=$layout SOCKETS=$folder/sockets succeeds mpirun -np 2 "$folder/meet"
    sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p' "$folder/sockets" >"$folder/own"
    awk 'NR == FNR { own[$1]; next } $5 == "0A" && $11 in own { split($3, at, ":"); print at[1] }' \
        "$folder/own" "$folder/sockets.all" >"$folder/listening"
    grep -q 0100007F "$folder/listening" || fail "$layout: the stall watch does not listen on 127.0.0.1: $(cat "$folder/listening")"
done

conclude
