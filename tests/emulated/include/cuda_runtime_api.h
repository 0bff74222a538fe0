// Stands in for CUDA's header of the same name: here all is in cuda_runtime.h.

#include "cuda_runtime.h"
