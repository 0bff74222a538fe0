// 1 none does-not-compile
// Macros that grow to 2^40 words.
#define A(x) x x x x x x x x x x x x x x x x
#define B(x) A(A(A(A(A(x)))))
const char text[] = B(B("0123456789abcdef"));
int main(void)
{
    return 0;
}
