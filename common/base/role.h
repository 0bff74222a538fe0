// What this process is in a job that was started by hand, without mpirun: a parameter server or a
// worker, as HVD_ROLE says it (hvd/ps.h has the whole of it).

#ifndef HVDLAB_ROLE_H
#define HVDLAB_ROLE_H

typedef enum { ROLE_NONE, ROLE_SERVER, ROLE_WORKER } RoleKind;

typedef struct {
    RoleKind kind;
    int number;           // among those of its kind, from 0
    int servers, workers; // of the job
} Role;

// The most there may be of each kind.
#define MAX_ROLES 1024

// From HVD_ROLE=server:0 or worker:2, HVD_SERVERS, a list with commas, and HVD_WORKERS, a number.
// ROLE_NONE, all else 0, where one of them is not set or makes no sense.
Role role_from_environment(void);

// Where a launcher would count ranks: the workers first, then the servers; 0 of 1 without a role.
int role_rank(void);
int role_size(void);

// "server" or "worker".
const char *role_name(RoleKind kind);

#endif
