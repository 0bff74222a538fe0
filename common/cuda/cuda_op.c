// What the CUDA backend's operations share: sizes, where variables are, and what --precision asks
// for.

#include "cuda/backend_cuda_inside.h"

#include "base/error.h"

ElementType image_element(void)
{
    return cuda_precision() == PRECISION_BF16 ? ELEMENT_BF16 : ELEMENT_FLOAT;
}

bool may_use_tf32(void)
{
    return cuda_precision() == PRECISION_TF32;
}

void cuda_library_failed(const char *library, const char *words)
{
    die("%s does not start (%s), probably out of GPU memory; a smaller --batch-size or --width "
        "needs less, and nvidia-smi shows who else is there",
        library, words);
}

size_t element_bytes(ElementType element)
{
    return element == ELEMENT_BF16 ? 2 : sizeof(float);
}

size_t elements_of(ActivationShape a)
{
    return (size_t)a.rows * (size_t)a.channels;
}

size_t activation_bytes(ActivationShape a)
{
    return elements_of(a) * element_bytes(a.element);
}

size_t aligned_bytes(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

const float *weight_of(const Op *op, int index, const Arenas *arenas)
{
    return arenas->weights + op->variables[index]->offset;
}

float *gradient_of(const Op *op, int index, const Arenas *arenas)
{
    return arenas->gradients + (op->variables[index]->offset - arenas->first_gradient);
}
