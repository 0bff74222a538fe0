// 1 none does-not-compile
// An object of many gigabytes.
char large[8l << 30] = {1};
int main(void)
{
    return large[1];
}
