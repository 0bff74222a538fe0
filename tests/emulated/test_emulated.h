// What the files of the stand-in's test share.

#ifndef TEST_EMULATED_H
#define TEST_EMULATED_H

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <emulated.h>
#include <vector>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

template <class T> T *allocate(size_t count)
{
    T *memory = nullptr;
    EXPECT(cudaMalloc(&memory, count * sizeof(T)) == cudaSuccess);
    return memory;
}

template <class T> T *upload(const std::vector<T> &values)
{
    T *memory = allocate<T>(values.size());
    size_t bytes = values.size() * sizeof(T);
    EXPECT(cudaMemcpy(memory, values.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
    return memory;
}

template <class T> std::vector<T> read(const T *memory, size_t count)
{
    std::vector<T> values(count);
    size_t bytes = count * sizeof(T);
    EXPECT(cudaMemcpy(values.data(), memory, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
}

void test_matrices();
void test_convolutions();
void test_cudnn_refusals();
int test_nccl(int argc, char **argv);

#endif
