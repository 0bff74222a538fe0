// NCCL over MPI: collectives on the simulated devices' memory, each done by a blocking call of MPI in
// the process whose stream comes to it.

#define OMPI_SKIP_MPICXX // the C++ bindings need a library of their own
#include <mpi.h>
#include <nccl.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>
#include "elements.h"

using namespace emulated;

struct ncclComm : Handle {
    MPI_Comm mpi;
    int rank, size;
};

namespace
{
auto &comms = *new std::set<ncclComm *>; // never destroyed, as the streams
int group_depth;
int collectives; // that this process has begun

// What the ranks tell each other when they meet: no two may be on one device.
struct Member {
    ncclUniqueId id;
    int rank, device;
    char host[64];
};

ncclResult_t bad(ncclResult_t result, const char *caller, const char *why)
{
    complain("%s: %s", caller, why);
    return result;
}

ncclResult_t check_members(MPI_Comm mpi, const Member &self)
{
    int size;
    MPI_Comm_size(mpi, &size);
    std::vector<Member> members(static_cast<size_t>(size));
    MPI_Allgather(&self, sizeof self, MPI_BYTE, members.data(), sizeof self, MPI_BYTE, mpi);
    for (int i = 0; i < size; i++) {
        const Member &m = members[static_cast<size_t>(i)];
        if (memcmp(&m.id, &self.id, sizeof m.id) != 0)
            return bad(ncclInvalidArgument, "ncclCommInitRank", "the ranks' ids differ");
        if (m.rank != i)
            return bad(ncclInvalidArgument, "ncclCommInitRank", "the ranks are not those of MPI");
        if (i != self.rank && m.device == self.device && strcmp(m.host, self.host) == 0) {
            complain("Duplicate GPU detected : rank %d and rank %d both on device %d", self.rank, i,
                     m.device);
            return ncclInvalidUsage;
        }
    }
    return ncclSuccess;
}

ncclResult_t check_call(const char *caller, const void *from, void *to, size_t bytes,
                        const ncclComm *comm)
{
    if (!usable(caller, comms, comm))
        return ncclInvalidArgument;
    return in_memory(caller, "sendbuff", from, bytes) && in_memory(caller, "recvbuff", to, bytes)
               ? ncclSuccess
               : ncclInvalidArgument;
}

size_t size_of(ncclDataType_t type)
{
    return type == ncclFloat32 || type == ncclInt32 || type == ncclUint32   ? 4
           : type == ncclFloat64 || type == ncclInt64 || type == ncclUint64 ? 8
           : type == ncclBfloat16 || type == ncclFloat16                    ? 2
                                                                            : 1;
}

// A sum of bfloat16 is rounded at every step, as in a ring of GPUs.
void add_bfloat16(void *in, void *inout, int *count, MPI_Datatype *)
{
    for (int i = 0; i < *count; i++) {
        auto k = static_cast<size_t>(i);
        store(Type::bfloat16, inout, k,
              load(Type::bfloat16, in, k) + load(Type::bfloat16, inout, k));
    }
}

MPI_Op mpi_op(ncclDataType_t type, ncclRedOp_t op)
{
    static MPI_Op sum;
    if (!sum)
        MPI_Op_create(add_bfloat16, 1, &sum);
    if (op == ncclSum || op == ncclAvg)
        return type == ncclBfloat16 ? sum : MPI_SUM;
    return op == ncclMax ? MPI_MAX : MPI_MIN;
}

constexpr size_t piece = 1 << 20; // elements: MPI counts with an int

void allreduce(const ncclComm &comm, const void *from, void *to, size_t count, ncclDataType_t type,
               ncclRedOp_t op)
{
    size_t bytes = size_of(type);
    MPI_Datatype mpi_type = type == ncclFloat32   ? MPI_FLOAT
                            : type == ncclFloat64 ? MPI_DOUBLE
                                                  : MPI_UINT16_T;
    if (from != to)
        memmove(to, from, count * bytes);
    for (size_t i = 0; i < count; i += piece) {
        auto length = static_cast<int>(count - i < piece ? count - i : piece);
        // Called by its profiling name: the kit's traces are of what the kit itself calls.
        PMPI_Allreduce(MPI_IN_PLACE, static_cast<char *>(to) + i * bytes, length, mpi_type,
                       mpi_op(type, op), comm.mpi);
    }
    for (size_t i = 0; op == ncclAvg && i < count; i++) {
        auto ranks = static_cast<float>(comm.size);
        if (type == ncclFloat64)
            static_cast<double *>(to)[i] /= static_cast<double>(ranks);
        else {
            Type own = type == ncclBfloat16 ? Type::bfloat16 : Type::float32;
            store(own, to, i, load(own, to, i) / ranks);
        }
    }
}

void broadcast(const ncclComm &comm, const void *from, void *to, size_t bytes, int root)
{
    if (comm.rank == root && from != to)
        memmove(to, from, bytes);
    for (size_t i = 0; i < bytes; i += piece) {
        auto length = static_cast<int>(bytes - i < piece ? bytes - i : piece);
        PMPI_Bcast(static_cast<char *>(to) + i, length, MPI_BYTE, root, comm.mpi);
    }
}

ncclResult_t start_work(const char *caller, ncclComm_t comm, cudaStream_t stream,
                        std::function<void()> work)
{
    comm->device->usage.launches++;
    collectives++;
    return submit(caller, stream, std::move(work)) == cudaSuccess ? ncclSuccess
                                                                  : ncclUnhandledCudaError;
}
} // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int count;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "emulated %ld %d", static_cast<long>(getpid()),
             ++count);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    *comm = nullptr;
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (start() != cudaSuccess)
        return ncclUnhandledCudaError;
    const char *wanted = getenv("EMULATED_NCCL");
    if (wanted && strcmp(wanted, "0") == 0)
        return ncclSystemError;
    if (wanted && strcmp(wanted, "stuck") == 0 && rank == size - 1)
        return ncclSystemError; // the others wait for this rank below
    if (ranks != size)
        return bad(ncclInvalidArgument, __func__, "all ranks of MPI must be in it");
    Member self = {id, rank, current()->index, ""};
    gethostname(self.host, sizeof self.host - 1);
    MPI_Comm mpi;
    PMPI_Comm_dup(MPI_COMM_WORLD, &mpi);
    ncclResult_t result = check_members(mpi, self);
    if (result != ncclSuccess) {
        MPI_Comm_free(&mpi);
        return result;
    }
    if (wanted && strcmp(wanted, "others") == 0 && rank == size - 1)
        return ncclSystemError;
    *comm = new ncclComm{{current(), nullptr}, mpi, rank, size};
    comms.insert(*comm);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!comms.erase(comm))
        return bad(ncclInvalidArgument, __func__, "there is no such communicator");
    finish(comm->device);
    int finalized;
    MPI_Finalized(&finalized);
    if (!finalized) {
        PMPI_Barrier(comm->mpi); // it waits for the other ranks
        MPI_Comm_free(&comm->mpi);
    }
    delete comm;
    return ncclSuccess;
}

// It may wait for the other ranks, and some may have no communicator.
ncclResult_t ncclCommAbort(ncclComm_t)
{
    end_program("ncclCommAbort: it would wait for the other ranks");
}

// EMULATED_NCCL=async: another rank is lost in the third collective.
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *error)
{
    const char *wanted = getenv("EMULATED_NCCL");
    *error = wanted && strcmp(wanted, "async") == 0 && collectives >= 3 ? ncclRemoteError : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (type != ncclFloat32 && type != ncclFloat64 && type != ncclBfloat16)
        return bad(ncclInvalidArgument, __func__, "float, double and bfloat16 are there");
    if (op == ncclProd || (type == ncclBfloat16 && op != ncclSum && op != ncclAvg))
        return bad(ncclInvalidArgument, __func__, "this reduction is not there");
    if (ncclResult_t result = check_call(__func__, from, to, count * size_of(type), comm))
        return result;
    return start_work(__func__, comm, stream, [=] { allreduce(*comm, from, to, count, type, op); });
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    size_t bytes = count * size_of(type);
    if (comms.count(comm) && (root < 0 || root >= comm->size))
        return bad(ncclInvalidArgument, __func__, "there is no such root");
    bool is_root = comms.count(comm) && comm->rank == root; // elsewhere `from` is not looked at
    if (ncclResult_t result = check_call(__func__, is_root ? from : to, to, bytes, comm))
        return result;
    return start_work(__func__, comm, stream, [=] { broadcast(*comm, from, to, bytes, root); });
}

ncclResult_t ncclGroupStart()
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd()
{
    if (group_depth == 0)
        return bad(ncclInvalidUsage, __func__, "without ncclGroupStart");
    group_depth--;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited",
                                        "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}
