// Divides a count into parts; share.h has the rule.

#include "base/share.h"

Share share_of(size_t count, int index, int sharers)
{
    size_t before = (size_t)index, each = count / (size_t)sharers, left = count % (size_t)sharers;
    return (Share){before * each + (before < left ? before : left), each + (before < left)};
}

Share share_of_blocks(size_t length, size_t block, int index, int sharers)
{
    Share blocks = share_of((length + block - 1) / block, index, sharers);
    size_t begin = blocks.begin * block, end = begin + blocks.count * block;
    begin = begin < length ? begin : length;
    end = end < length ? end : length;
    return (Share){begin, end - begin};
}
