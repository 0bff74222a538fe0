// Inside hvd: which transport is taken (transport.h says which ones there are, and when).

#ifndef HVDLAB_TRANSPORT_CHOICE_H
#define HVDLAB_TRANSPORT_CHOICE_H

#include "comm/agreement.h"
#include "comm/transport.h"

// Before a model's values are exchanged for the first time: exits with an error message where not
// all ranks have these arenas, laid out alike. Collective.
void hvd_agree_on_arenas(const Parameters *parameters, MPI_Comm comm);
// Then the transport for them, where `working` ranks contribute values. Collective; apart from
// single updates (transport_own.c) the choice of the first call is final.
const Transport *hvd_transport(int working, MPI_Comm comm);
// Terms: the same hvd_use_allreduce, the same model.
Term hvd_adder_term(void);
Term hvd_model_term(const Parameters *parameters);
// The values in the host's memory: themselves, or a copy of a GPU's. hvd_return_values writes a
// copy back and frees it.
float *hvd_host_values(float *values, size_t count);
void hvd_return_values(float *values, float *host, size_t count);

// Stops NCCL. At exit (start.c) transport_end calls it if the status is 0: like MPI, NCCL ends
// cleanly only if all ranks end it.
void hvd_transport_stop(void);
void transport_end(int status);

#endif
